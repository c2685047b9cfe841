"""Request bodies: compressed or not, within their bounds, or refused with a reason."""

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping

import brotli
import pytest
import zstandard

from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.live import Live, listening, request_bytes
from tests.support.messages import MESSAGES
from tests.support.site import CHAT, Served, chat, serving

COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "zstd": zstandard.compress,
    "br": brotli.compress,
    "identity": bytes,
}
BODY = json.dumps(chat()).encode()
LONG = json.dumps(chat(user="x" * 5_000_000)).encode()  # beyond the 4 MiB of the default


def ask(site: Served[FakeEngine], body: bytes, coding: str, path: str = CHAT, pieces: int = 1000) -> Exchange:
    headers = {"content-type": "application/json", "content-encoding": coding}
    chunks = [body[start : start + pieces] for start in range(0, len(body), pieces)] or [b""]
    return Exchange(site.app, scope_of("POST", path, headers), chunks)


async def refusal(site: Served[FakeEngine], body: bytes, coding: str) -> tuple[int, str]:
    answer = await ask(site, body, coding, pieces=1 << 16)
    assert not site.engine.sequences
    return answer.status, answer.error["code"]


@pytest.mark.parametrize("coding", COMPRESS)
async def test_a_compressed_body_is_read(site: Served[FakeEngine], coding: str) -> None:
    exchange = ask(site, COMPRESS[coding](BODY), coding, pieces=7)
    sequence = await site.engine.sequence()
    sequence.say("ok")
    sequence.end()
    assert (await exchange).json["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize("coding", COMPRESS)
async def test_a_body_too_large_is_refused_however_it_is_sent(site: Served[FakeEngine], coding: str) -> None:
    assert await refusal(site, COMPRESS[coding](LONG), coding) == (413, "request_too_large")


async def test_a_body_said_to_be_too_large_is_refused_before_it_is_read(site: Served[FakeEngine]) -> None:
    headers = {"content-type": "application/json", "content-length": str(5 << 20)}
    exchange = Exchange(site.app, scope_of("POST", CHAT, headers), [])  # not a byte comes
    await exchange
    assert (exchange.status, exchange.error["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
async def test_a_body_that_inflates_beyond_its_ratio_is_refused(site: Served[FakeEngine], coding: str) -> None:
    packed = COMPRESS[coding](json.dumps(chat(user="x" * 3_000_000)).encode())
    assert len(packed) * 100 < 3_000_000
    assert await refusal(site, packed, coding) == (413, "request_too_large")


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
async def test_a_body_that_is_not_what_it_says_is_refused(site: Served[FakeEngine], coding: str) -> None:
    packed = COMPRESS[coding](BODY)
    for body in (BODY, packed[:-1], packed + b"x", b""):
        assert await refusal(site, body, coding) == (400, "invalid_content_encoding")


@pytest.mark.parametrize("coding", ["deflate", "gzip, gzip", "zstd,br", "rot13"])
async def test_an_unknown_coding_is_refused(site: Served[FakeEngine], coding: str) -> None:
    assert await refusal(site, BODY, coding) == (415, "unsupported_content_encoding")


async def test_two_content_encoding_lines_are_two_codings(site: Served[FakeEngine]) -> None:
    scope = scope_of("POST", CHAT, {"content-encoding": "gzip"})
    scope["headers"] = scope["headers"] * 2
    assert (await Exchange(site.app, scope, [gzip.compress(BODY)])).status == 415


@pytest.mark.parametrize("levels", [65, 100, 10_000, 1_000_000])
@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}")])
async def test_a_body_that_nests_too_deeply_is_refused(
    site: Served[FakeEngine], levels: int, opening: str, closing: str
) -> None:
    levels = min(levels, 4_000_000 // len(opening + closing))
    for body in (opening * levels, f'{{"model": {opening * (levels - 1)}1{closing * (levels - 1)}}}'):
        assert await refusal(site, body.encode(), "identity") == (400, "json_too_deep")


async def test_the_depth_of_a_schema_is_the_operators_choice(engine: FakeEngine) -> None:
    deep = json.dumps(chat(metadata=json.loads('{"a":' * 10 + "1" + "}" * 10))).encode()
    async with serving(engine, "http.max_body_depth=8") as site:
        assert await refusal(site, deep, "identity") == (400, "json_too_deep")


async def test_brackets_in_what_somebody_says_are_no_depth(site: Served[FakeEngine]) -> None:
    exchange = ask(
        site, json.dumps(chat(messages=[{"role": "user", "content": '\\"' + "[{" * 100}])).encode(), "identity"
    )
    sequence = await site.engine.sequence()
    sequence.end()
    assert (await exchange).status == 200


async def test_refusals_have_the_envelope_of_their_protocol(site: Served[FakeEngine]) -> None:
    answer = await ask(site, b"[" * 1000, "identity", MESSAGES)
    assert answer.status == 400
    assert answer.json["error"]["type"] == "invalid_request_error"


async def control(live: Live[FakeEngine]) -> None:
    """Somebody else is served."""
    async with live.client() as client:
        client.write(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await client.head() == 200


async def test_a_client_that_sends_far_too_much_can_still_read_why_it_was_refused(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as client:
        client.write(request_bytes(CHAT, b"x" * (8 << 20)))
        await control(live)
        assert await client.head() == 413
        assert json.loads(await client.body())["error"]["code"] == "request_too_large"
        await control(live)


@pytest.mark.parametrize("size", [1 << 20, 64 << 20])
async def test_a_chunked_body_without_end_is_cut_off(engine: FakeEngine, size: int) -> None:
    async def flood() -> None:
        for _ in range(size // 65536):
            client.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await client._writer.drain()

    async with listening(engine, "http.max_body_bytes=100000") as live, live.client() as client:
        client.write(b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT.encode())
        flooding = asyncio.create_task(flood())
        assert await client.head() == 413
        await control(live)
        await client.closed()
        await asyncio.wait((flooding,), timeout=20)
        assert flooding.done()
        if not flooding.cancelled():
            flooding.exception()  # the server may have gone first
        await control(live)


async def test_a_length_that_is_too_long_waits_for_the_rest_and_is_told(engine: FakeEngine) -> None:
    async with listening(engine, "http.body_timeout=0.2") as live, live.client() as client:
        client.write(request_bytes(CHAT, BODY, {"Content-Length": str(len(BODY) + 1)}))
        assert await client.head() == 408
        assert json.loads(await client.closed())["error"]["code"] == "body_timeout"
        (record,) = await live.records()
        assert record["outcome"] == "client_gone"
        await control(live)


async def test_a_length_that_is_too_short_leaves_no_request_and_closes(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as client:
        client.write(request_bytes(CHAT, BODY, {"Content-Length": str(len(BODY) - 1)}))
        assert await client.head() == 400
        assert json.loads(await client.body())["error"]["code"] == "invalid_json"
        await client.closed()
        await control(live)
        assert not engine.sequences
