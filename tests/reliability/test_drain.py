"""A server of its own is told to go while fifty streams run: real signals, and what their readers see."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest

from tests.reliability.readers import Reader, readers
from tests.support import sse
from tests.support.process import ServerProcess, server_process
from tests.support.site import CHAT, chat

STREAMS = 50
TOKENS = 120
STEP_MS = 40  # so that streams outlive the checks of a draining server by seconds
ENDLESS = 8000
SOON_S = 30  # a few are promised, beside the grace


@asynccontextmanager
async def running(tokens: int, *settings: str) -> AsyncIterator[tuple[ServerProcess, list[Reader]]]:
    """A server, and the readers of its streams: every one has shown its first event."""
    async with server_process(*settings) as server:
        await server.until("/ready", 200)
        async with readers(server.port, STREAMS) as streams:
            for reader in streams:
                reader.post(CHAT, chat(stream=True, max_tokens=tokens))
            for reader in streams:
                assert await reader.head() == 200
                assert await reader.chunk()
            yield server, streams


async def rest_of(streams: list[Reader]) -> list[list[Any]]:
    return await asyncio.gather(*(reader.events() for reader in streams))


async def test_running_streams_finish_while_new_requests_are_sent_elsewhere() -> None:
    async with running(TOKENS, f"engine.scripted.step_ms={STEP_MS}", "http.shutdown_grace=300") as (server, streams):
        server.signal(signal.SIGTERM)
        await server.until("/ready", 503)
        assert await server.get("/live") == 200
        assert await refusal(server) == ("server_shutting_down", "close")
        for found in await rest_of(streams):
            assert sse.finish_reasons(found) == {0: "length"}
            assert found[-1] == sse.DONE
        assert await server.exit_code(SOON_S) == 0
        records = [json.loads(line) for line in (await server.errors()).splitlines()]
        served = [record for record in records if record["event"] == "request" and record["outcome"] == "ok"]
        assert [record["output_tokens"] for record in served] == [TOKENS] * STREAMS


@pytest.mark.parametrize(("grace_s", "hurried"), [(1, False), (600, True)], ids=["grace over", "second signal"])
async def test_streams_that_may_not_finish_are_told_so(grace_s: int, hurried: bool) -> None:
    async with running(ENDLESS, f"http.shutdown_grace={grace_s}") as (server, streams):
        told = monotonic()
        server.signal(signal.SIGTERM)
        if hurried:
            await server.until("/ready", 503)
            server.signal(signal.SIGTERM)
        for *shown, error, done in await rest_of(streams):
            assert (error["error"]["code"], done) == ("server_shutting_down", sse.DONE)
            assert sse.finish_reasons(shown) == {}, "none is invented"
        for reader in streams:
            assert await reader.closed() == b""
        assert await server.exit_code(SOON_S) == 0
        assert monotonic() - told < SOON_S


async def refusal(server: ServerProcess) -> tuple[str, str]:
    """The code that a new request is refused with, and what becomes of its connection."""
    async with server.client() as client:
        client.post(CHAT, chat())
        assert await client.head() == 503
        code = json.loads(await client.body())["error"]["code"]
        return code, client.headers["connection"]
