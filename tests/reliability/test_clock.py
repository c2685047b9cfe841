"""The wall clock jumps by an hour, either way, under a running server: only what tells the time of day notices.

The server is a process whose `time.time` is this test's to set, before anything of it is imported.
"""

import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import sse
from tests.support.live import Client
from tests.support.process import ServerProcess, launched
from tests.support.site import CHAT, MODEL, chat

CLOCK = """
import runpy, sys, time
from pathlib import Path

offset_s, real, real_ns = Path(sys.argv.pop(1)), time.time, time.time_ns
time.time = lambda: real() + float(offset_s.read_text())
time.time_ns = lambda: real_ns() + round(float(offset_s.read_text()) * 1e9)
runpy.run_module("server", run_name="__main__")
"""
HOUR_S = 3600.0
SANE_S = 600  # between two looks at a clock, on whatever machine
TOKENS = 50
REQUESTS = 10  # in a minute


class Clock:
    """What the server takes for the time of day: `offset_s` off the true one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset_s = 0.0
        self.jump(0.0)

    def jump(self, seconds: float) -> None:
        self.offset_s += seconds
        new = self.path.with_suffix(".new")
        new.write_text(str(self.offset_s))
        new.replace(self.path)

    def shows(self, seconds: float) -> bool:
        return abs(time.time() + self.offset_s - seconds) < SANE_S


@pytest.fixture(params=[HOUR_S, -HOUR_S], ids=["forth", "back"])
def jump_s(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "offset")


@pytest.fixture
async def server(clock: Clock) -> AsyncIterator[ServerProcess]:
    settings = (
        "admission.max_batch_size=1",
        "engine.scripted.step_ms=40",
        f"limits.requests_per_minute={REQUESTS}",
        "limits.tokens_per_minute=1000000",
    )
    async with launched((sys.executable, "-c", CLOCK, str(clock.path)), *settings) as found:
        await found.until("/ready", 200)
        yield found


async def test_nothing_times_out_and_what_comes_later_is_dated_by_the_new_time(
    server: ServerProcess, clock: Clock, jump_s: float
) -> None:
    async with server.client() as idle, server.client() as running, server.client() as queued:
        stored = await post(idle, "/v1/responses", {"model": MODEL, "input": "Hi", "max_output_tokens": 2})
        assert clock.shows(stored["created_at"])
        running.post(CHAT, chat(stream=True, max_tokens=TOKENS))
        assert await running.head() == 200
        created = json.loads((await running.chunk()).removeprefix(b"data: "))["created"]
        assert clock.shows(created)
        queued.post(CHAT, chat(max_tokens=2))
        clock.jump(jump_s)

        found = await running.events()
        assert sse.finish_reasons(found) == {0: "length"}
        assert {event["created"] for event in found if event != sse.DONE} == {created}
        assert await queued.head() == 200
        await queued.body()
        assert clock.shows((await post(idle, CHAT, chat(max_tokens=2)))["created"])
        assert (await get(idle, f"/v1/responses/{stored['id']}"))["created_at"] == stored["created_at"]
        records = (await get(idle, "/debug/requests"))["requests"]
        assert [record["outcome"] for record in records] == ["ok"] * 4
        assert all(0 <= record["wall_ms"] < SANE_S * 1000 for record in records)
        await is_limited_for_no_hour(idle)


async def is_limited_for_no_hour(client: Client) -> None:
    """Whatever the clock says, a minute's limit is over within two."""
    for _ in range(3 * REQUESTS):  # more than fade meanwhile
        client.post(CHAT, chat(max_tokens=1))
        if await client.head() == 429:
            break
        await client.body()
    assert 1 <= int(client.headers["retry-after"]) <= 120
    error = json.loads(await client.body())["error"]
    assert (error["reason"], error["limit"]) == ("requests", REQUESTS)
    assert 0 <= error["reset_s"] <= 120


async def get(client: Client, path: str) -> Any:
    client.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    assert await client.head() == 200
    return json.loads(await client.body())


async def post(client: Client, path: str, payload: dict[str, Any]) -> Any:
    client.post(path, payload)
    assert await client.head() == 200
    return json.loads(await client.body())
