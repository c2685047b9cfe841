"""A client that can be cut off at any point: plain asyncio streams, bytes and JSON."""

import asyncio
import json
from typing import Any

import orjson

from bench.client import stream_request
from bench.sample import RequestSample
from bench.wire import request_bytes
from tests.integration.live import DEADLINE_S, LiveServer

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MODEL = "smollm2-135m"
HEALTHY_PROMPT = "All is well"


def chat(text: str = "Tell me a long story about a lighthouse.", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


def completion(prompt: Any = "Once upon a time", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "temperature": 0, **fields}


def long_one(**fields: Any) -> dict[str, Any]:
    """Far from done when a test looks at it."""
    return {"max_tokens": 1800, "ignore_eos": True, **fields}


async def post(live: LiveServer, path: str, body: dict[str, Any] | bytes) -> RequestSample:
    """The whole answer, streamed or not, with the client's own stamps."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()  # orjson has no integers beyond 64 bits
    return await stream_request(live.host, live.port, path, raw, deadline_s=DEADLINE_S)


def answer(sample: RequestSample) -> dict[str, Any]:
    """The JSON of a non-streamed answer, whatever its status."""
    parsed = orjson.loads(sample.body)
    assert isinstance(parsed, dict)
    return parsed


async def healthy(live: LiveServer) -> None:
    """A tiny request works."""
    sample = await post(live, COMPLETIONS, completion(HEALTHY_PROMPT, max_tokens=1))
    assert sample.ok, sample.detail


def name(value: Any) -> str:
    """A parameter's id in a test's name."""
    return json.dumps(value)[:48]


class OpenRequest:
    """A request whose answer is not read to its end; `close` is the client going away."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def send(cls, live: LiveServer, path: str, body: dict[str, Any]) -> "OpenRequest":
        reader, writer = await asyncio.open_connection(live.host, live.port)
        writer.write(request_bytes(live.host, live.port, path, orjson.dumps(body), {}))
        await writer.drain()
        return cls(reader, writer)

    async def first_event(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readuntil(b"\n\n")

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
