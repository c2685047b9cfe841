import asyncio
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from bench.overload_arms import Station
from bench.overload_capacity import measure_capacity, steady
from bench.overload_plan import Lengths, Request, Workload
from bench.sample import RequestSample

WORKLOAD = Workload(Lengths(16, 64, 128, 0.5), Lengths(2, 4, 8, 0.5), seed=1)


@dataclass(frozen=True)
class Serial(Station):
    """Answers one request after the other; `error` makes it refuse instead."""

    error: str | None = None
    asked: list[int | None] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(
        self, request: Request, scheduled_ns: int | None = None, *, max_tokens: int | None = None, **_: Any
    ) -> RequestSample:
        self.asked.append(max_tokens)
        async with self.turn:
            await asyncio.sleep(0.001)
        tokens = max_tokens or request.output_tokens
        done_ns = None if self.error else time.monotonic_ns()
        return RequestSample(
            error=self.error, done_ns=done_ns, prompt_tokens=request.prompt_tokens, output_tokens=tokens
        )


async def test_only_what_was_completed_after_the_warm_up_counts() -> None:
    numbers = count()
    sent: list[RequestSample] = []

    async def send() -> RequestSample:
        sent.append(RequestSample(sent_ns=next(numbers)))
        await asyncio.sleep(0.001)
        sent[-1].done_ns = time.monotonic_ns()
        return sent[-1]

    opens_ns = time.monotonic_ns() + 50_000_000
    samples = await steady(send, concurrency=1, warmup_s=0.05, seconds=0.1)
    assert 0 < len(samples) < len(sent)
    assert all(sample.done_ns is not None and sample.done_ns >= opens_ns for sample in samples)


async def test_the_loop_keeps_its_concurrency_and_leaves_nothing_running() -> None:
    in_flight = most = 0

    async def send() -> RequestSample:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        try:
            await asyncio.sleep(0.001)
        finally:
            in_flight -= 1
        return RequestSample(done_ns=time.monotonic_ns())

    await steady(send, concurrency=3, warmup_s=0.0, seconds=0.1)
    assert (most, in_flight) == (3, 0)


async def test_a_client_that_was_turned_away_waits_before_it_comes_back() -> None:
    sent = 0

    async def send() -> RequestSample:
        nonlocal sent
        sent += 1
        return RequestSample(error="http 503")

    assert await steady(send, concurrency=1, warmup_s=0.0, seconds=0.25) == []
    assert 1 <= sent <= 3


async def test_capacity_is_that_of_the_best_concurrency_and_prefill_is_measured_without_decoding() -> None:
    server = Serial(0, 0, "m", deadline_s=1.0)
    found = await measure_capacity(server, WORKLOAD, source="stock", concurrencies=[1, 2], warmup_s=0.05, seconds=0.2)
    assert found.requests_per_s == max(loop.requests_per_s for loop in found.sweep) > 0
    assert [loop.concurrency for loop in found.sweep] == [1, 2]
    assert all(loop.output_tokens >= 2 * loop.completed for loop in found.sweep)
    assert found.prefill_tokens_per_s > 0
    assert server.asked[0] is None and server.asked[-1] == 1


async def test_a_server_that_completes_nothing_has_no_capacity() -> None:
    broken = Serial(0, 0, "m", deadline_s=1.0, error="http 500")
    with pytest.raises(ValueError, match="stock completed nothing"):
        await measure_capacity(broken, WORKLOAD, source="stock", concurrencies=[1], warmup_s=0.0, seconds=0.1)
