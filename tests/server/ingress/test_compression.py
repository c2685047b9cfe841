"""Bodies are compressed for those who ask; streams for nobody."""

import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any

import brotli
import pytest
import zstandard

from tests.server.conftest import MakeScripted
from tests.support import sse
from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.live import Live, listening
from tests.support.messages import MESSAGES
from tests.support.responses import RESPONSES
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion

DECOMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "br": brotli.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompress(body, max_output_size=1 << 20),
}
EVERYTHING = "gzip, deflate, br, zstd"
STREAMS: Mapping[str, dict[str, Any]] = {
    CHAT: chat(stream=True),
    COMPLETIONS: completion(stream=True),
    RESPONSES: {"model": "smollm2-135m", "input": "Hi", "stream": True},
    MESSAGES: {**chat(stream=True), "max_tokens": 50},
}


def ask(site: Served[FakeEngine], accept: str | None, payload: dict[str, Any], path: str = CHAT) -> Exchange:
    headers = {"content-type": "application/json", **({"accept-encoding": accept} if accept else {})}
    return Exchange(site.app, scope_of("POST", path, headers), [json.dumps(payload).encode()])


async def answered(site: Served[FakeEngine], accept: str | None, text: str) -> Exchange:
    exchange = ask(site, accept, chat())
    sequence = await site.engine.sequence(len(site.engine.sequences))
    sequence.say(text)
    sequence.end()
    return await exchange


@pytest.mark.parametrize("coding", DECOMPRESS)
async def test_a_body_is_compressed_on_request(site: Served[FakeEngine], coding: str) -> None:
    answer = await answered(site, coding, "word " * 500)
    assert answer.headers["content-encoding"] == coding
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers["content-length"] == str(len(answer.body))
    body = DECOMPRESS[coding](answer.body)
    assert len(answer.body) < len(body) / 2
    assert json.loads(body)["choices"][0]["message"]["content"] == "word " * 500


async def test_without_the_request_it_is_not_but_caches_are_told(site: Served[FakeEngine]) -> None:
    for accept in (None, "identity", "gzip;q=0", "unheard-of"):
        answer = await answered(site, accept, "word " * 500)
        assert "content-encoding" not in answer.headers
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.json["choices"][0]["message"]["content"] == "word " * 500


async def test_a_short_body_is_left_as_it_is(site: Served[FakeEngine]) -> None:
    answer = await answered(site, EVERYTHING, "word")
    assert "content-encoding" not in answer.headers
    assert answer.json["choices"][0]["message"]["content"] == "word"


async def test_metrics_are_compressed_too(site: Served[FakeEngine]) -> None:
    answer = await Exchange(site.app, scope_of("GET", "/metrics", {"accept-encoding": "gzip"}), [b""])
    assert answer.headers["content-encoding"] == "gzip"
    assert b"streamgauge_" in gzip.decompress(answer.body)


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_is_the_same_whatever_its_client_accepts(site: Served[FakeEngine], path: str) -> None:
    shapes = []
    for index, accept in enumerate((None, EVERYTHING)):
        exchange = ask(site, accept, STREAMS[path], path)
        sequence = await site.engine.sequence(index)
        for word in ("one", " two", " three"):
            sequence.say(word)
        sequence.end()
        await exchange
        assert exchange.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in exchange.headers
        assert "vary" not in exchange.headers
        shapes.append(([len(write) for write in exchange.writes], exchange.headers.keys()))
    assert shapes[0] == shapes[1]


async def test_a_stream_on_a_socket_is_still_one_chunk_for_each_event(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as client:
        client.post(CHAT, chat(stream=True), {"Accept-Encoding": EVERYTHING})
        sequence = await engine.sequence()
        sequence.say("one")
        assert await client.head() == 200
        assert "content-encoding" not in client.headers
        assert sse.text_of(sse.events(await client.chunk())) == "one"
        sequence.end()
        assert (await client.events())[-1] == sse.DONE


async def test_an_answer_on_a_socket_has_the_length_it_says(scripted: MakeScripted) -> None:
    async with listening(scripted()) as live, live.client() as client:
        assert isinstance(live, Live)
        client.post(CHAT, chat(max_tokens=2000), {"Accept-Encoding": "zstd"})
        assert await client.head() == 200
        assert client.headers["content-encoding"] == "zstd"
        body = DECOMPRESS["zstd"](await client.body())
        assert json.loads(body)["usage"]["completion_tokens"] == 2000
