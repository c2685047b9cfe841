"""Short requests without end: what the server holds afterwards is what it held before."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import pytest
import structlog

from server.config import ScriptedSettings
from server.engine.protocol import OnReleased, OnStep
from server.engine.scripted_engine import ScriptedEngine
from server.request import EngineRequest
from tests.reliability import growth
from tests.reliability.growth import Growth, growth_of
from tests.reliability.readers import Reader
from tests.server.conftest import MakeScripted
from tests.support.live import listening, request_bytes
from tests.support.site import CHAT, COMPLETIONS, MODEL, chat, completion
from tests.support.waiting import until

CLIENTS = 16
USAGE = {"include_usage": True}
REQUESTS = [
    (200, request_bytes(CHAT, chat(stream=True, max_tokens=4, stream_options=USAGE))),
    (200, request_bytes(COMPLETIONS, completion(max_tokens=2, n=2))),
    (200, request_bytes("/v1/messages", chat(stream=True, max_tokens=3))),
    (400, request_bytes(CHAT, chat(temperature=-1))),
    (200, request_bytes("/v1/responses", {"model": MODEL, "input": "Hi", "store": False, "max_output_tokens": 2})),
    (404, request_bytes(CHAT, chat(model="other"))),
]
ENDLESS = request_bytes(CHAT, chat(stream=True, max_tokens=8000))
SETTINGS = ("telemetry.records=20", "http.keepalive=0")
LEAKED = 16 << 10  # bytes, in one object a sequence
BLOCKS, RESIDENT = 0.3, 1000  # by request: a third of what is planted, and a tenth


class LeakingEngine(ScriptedEngine):
    """Keeps something of every sequence."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kept: list[bytes] = []

    def submit(self, request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> Any:
        self.kept.append(b"x" * LEAKED)
        return super().submit(request, on_step, on_released)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Without a log line for each request: the test's own runner would keep them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.reset_defaults()


async def visit(port: int, requests: int) -> None:
    """One client: its requests on one connection, and one more that it leaves in the middle."""
    reader = await Reader.connect(port)
    try:
        for status, request in islice(cycle(REQUESTS), requests - 1):
            reader.write(request)
            assert await reader.head() == status
            await reader.body()
        reader.write(ENDLESS)
        assert await reader.head() == 200
        await reader.chunk()
    finally:
        reader.reset()


async def grown(engine: ScriptedEngine, *, warm_up: int, rounds: int, requests: int) -> Growth:
    async with listening(engine, *SETTINGS) as live:

        async def load(count: int) -> None:
            each, rest = divmod(count, CLIENTS)
            assert not rest
            await asyncio.gather(*(visit(live.port, each) for _ in range(CLIENTS)))
            await until(lambda: live.idle and not engine.in_flight)

        await load(CLIENTS * len(REQUESTS))
        tasks, descriptors = growth.tasks(), growth.descriptors()
        found = await growth_of(load, warm_up=warm_up, rounds=rounds, requests=requests)
        await until(lambda: growth.tasks() == tasks and growth.descriptors() == descriptors)
        assert not gc.garbage
        assert live.services.metrics.requests.total() == warm_up + rounds * requests + CLIENTS * len(REQUESTS)
        return found


FEW = {"warm_up": 400, "rounds": 6, "requests": 400}


async def test_a_few_thousand_requests_leave_nothing_behind(scripted: MakeScripted) -> None:
    found = await grown(scripted(), **FEW)
    assert found.blocks < BLOCKS, found
    assert found.resident < RESIDENT, found


async def test_what_an_engine_keeps_of_each_sequence_is_seen(scripted: MakeScripted, source: str) -> None:
    scripted()  # its tokenizer stands in for the one of every scripted engine
    found = await grown(LeakingEngine(ScriptedSettings(step_ms=0), source, MODEL), **FEW)
    assert found.blocks > BLOCKS, found
    assert found.resident > RESIDENT, found


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_hundred_thousand_requests_leave_nothing_behind(scripted: MakeScripted) -> None:
    found = await grown(scripted(), warm_up=10_000, rounds=20, requests=4992)
    assert found.blocks < 0.01, found
    assert found.resident < 1, found
