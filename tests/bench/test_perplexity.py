"""Perplexity from a server's log probabilities of prompts."""

import asyncio
import math

import orjson
import pytest

from bench.perplexity import PASSAGE_CHARACTERS, logprobs, measure, passages
from bench.run.address import Address
from bench.run.spec import Closed, Spec

ENTRIES = [None, {"5": {"logprob": -1.0}, "7": {"logprob": -0.5}}, {"9": {"logprob": -3.0}}]


async def answered(status: bytes, body: object) -> tuple[float, int]:
    """What `measure` finds where every prompt is answered so."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        raw = orjson.dumps(body)
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(raw))
        writer.write(head + raw)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = Address.of(Spec(f"http://127.0.0.1:{port}", "m", Closed(1), 1))
        return await measure(address, "m", ["one", "two"])


def test_passages_are_of_one_length_and_no_two_are_the_same() -> None:
    found = passages(12)
    assert {len(one) for one in found} == {PASSAGE_CHARACTERS}
    assert len(set(found)) == 12


def test_the_first_token_and_alternatives_do_not_count() -> None:
    assert list(logprobs(ENTRIES)) == [-1.0, -3.0]


async def test_perplexity_is_over_the_tokens_of_all_texts() -> None:
    body = {"choices": [{"text": "", "prompt_logprobs": ENTRIES}]}
    assert await answered(b"200 OK", body) == (pytest.approx(math.exp(2)), 4)


async def test_a_server_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no answer"):
        await answered(b"400 Bad Request", {"error": {"message": "no"}})
