"""However the network cuts a request and its answer into pieces, and whoever else is served, the answer is the same."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from server.engine.scripted_engine import ScriptedEngine
from tests.server.conftest import MakeScripted
from tests.support import sse
from tests.support.golden import normalised
from tests.support.live import Live, listening, request_bytes
from tests.support.site import CHAT, COMPLETIONS, chat, completion
from tests.support.waiting import DEADLINE_S

SIZES = range(1, 18)
CLIENTS = 32
MAX_TOKENS = 12
FIELDS: dict[str, Any] = {"n": 3, "max_tokens": MAX_TOKENS, "temperature": 0, "seed": 7}
STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
# The ids play an emoji too, whose bytes no single token holds.
TEXT = "Where is the answer? 🙂 It's here."
ROUTES = pytest.mark.parametrize(
    ("path", "payload"), [(CHAT, chat(**FIELDS)), (COMPLETIONS, completion(**FIELDS))], ids=["chat", "completions"]
)


@pytest.fixture
async def live(scripted: MakeScripted, tokenizer: Any) -> AsyncIterator[Live[ScriptedEngine]]:
    engine = scripted(step_ms=1, token_ids=tuple(tokenizer.encode(TEXT, add_special_tokens=False)))
    async with listening(engine, send_buffer=4096) as server:
        yield server


async def exchange(port: int, path: str, payload: Any, sizes: Iterator[int]) -> tuple[str, bytes]:
    """The answer's head and body; each segment sent and each read is as long as the next of `sizes`, in bytes."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        async with asyncio.timeout(DEADLINE_S):
            await loop.sock_connect(client, ("127.0.0.1", port))
            request = request_bytes(path, payload, {"Connection": "close"})
            while request:
                size = next(sizes)
                await loop.sock_sendall(client, request[:size])
                request = request[size:]
                await asyncio.sleep(0)  # lets the server read this segment alone
            answer = b""
            while data := await loop.sock_recv(client, next(sizes)):
                answer += data
    head, _, rest = answer.partition(b"\r\n\r\n")
    return head.decode().lower(), dechunked(rest) if b"chunked" in head else rest


def dechunked(data: bytes) -> bytes:
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        assert data[length : length + 2] == b"\r\n"
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            assert data == b""
            return body


async def ask(port: int, path: str, payload: Any, sizes: Iterator[int]) -> bytes:
    head, body = await exchange(port, path, payload, sizes)
    assert head.startswith("http/1.1 200 ")
    return body


def texts_of_body(body: bytes) -> list[str]:
    choices = json.loads(body)["choices"]
    return [choice["text"] if "text" in choice else choice["message"]["content"] for choice in choices]


@ROUTES
async def test_segments_of_any_size_bring_the_same_stream(
    live: Live[ScriptedEngine], path: str, payload: dict[str, Any]
) -> None:
    whole = await ask(live.port, path, payload | STREAMED, itertools.repeat(2**16))
    for size in SIZES:
        body = await ask(live.port, path, payload | STREAMED, itertools.repeat(size))
        assert normalised(body) == normalised(whole)


@ROUTES
async def test_a_stream_tells_the_text_and_the_usage_of_the_whole_answer(
    live: Live[ScriptedEngine], path: str, payload: dict[str, Any]
) -> None:
    for size in (1, 7, 17):
        found = sse.events(await ask(live.port, path, payload | STREAMED, itertools.repeat(size)))
        body = await ask(live.port, path, payload, itertools.repeat(size))
        texts = [sse.text_of(found, index) for index in range(3)]
        assert texts == texts_of_body(body)
        assert all("🙂" in text for text in texts)
        usage = json.loads(body)["usage"]
        assert found[-2]["usage"] == usage
        assert usage["completion_tokens"] == 3 * MAX_TOKENS
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@ROUTES
async def test_thirty_two_at_once_get_what_one_alone_gets(
    live: Live[ScriptedEngine], path: str, payload: dict[str, Any]
) -> None:
    alone = await ask(live.port, path, payload | STREAMED, itertools.repeat(2**16))
    alone_whole = texts_of_body(await ask(live.port, path, payload, itertools.repeat(2**16)))
    # Every client starts elsewhere in the sizes, so that no two of them cut alike.
    cuts = [itertools.cycle([*SIZES[k % 17 :], *SIZES[: k % 17]]) for k in range(CLIENTS)]
    streams = await asyncio.gather(*(ask(live.port, path, payload | STREAMED, cut) for cut in cuts))
    assert {normalised(body) for body in streams} == {normalised(alone)}
    bodies = await asyncio.gather(*(ask(live.port, path, payload, cut) for cut in cuts))
    assert {tuple(texts_of_body(body)) for body in bodies} == {tuple(alone_whole)}
    assert live.idle
    assert live.engine.in_flight == 0


async def test_every_cut_of_a_refused_request_brings_the_same_error(live: Live[ScriptedEngine]) -> None:
    answers = [await exchange(live.port, CHAT, chat(n="many"), itertools.repeat(size)) for size in SIZES]
    assert {(head.split(" ")[1], body) for head, body in answers} == {("400", answers[0][1])}
