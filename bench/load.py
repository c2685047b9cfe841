"""Load on a server: closed loop (so many at a time) for capacity, open loop (so many a second) for anything else."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice

from bench.client import stream_request
from bench.metrics import Summary, summarize
from bench.sample import RequestSample

# Sends the request of this number; the second argument is when it was due (CLOCK_MONOTONIC, ns), None in a closed loop.
Send = Callable[[int, int | None], Awaitable[RequestSample]]


@dataclass(frozen=True)
class LoadResult:
    """The measured part of a run: the samples of its warm-up are left out."""

    samples: list[RequestSample]
    wall_ns: int

    @cached_property
    def summary(self) -> Summary:
        return summarize(self.samples, self.wall_ns)


@dataclass(frozen=True)
class Target:
    """Where requests go and what they say: `body(number)` is the JSON of one of them."""

    host: str
    port: int
    path: str
    body: Callable[[int], bytes]
    headers: Mapping[str, str] = field(default_factory=dict)
    deadline_s: float = 600.0

    async def send(self, number: int, scheduled_ns: int | None) -> RequestSample:
        body = self.body(number)
        return await stream_request(
            self.host, self.port, self.path, body, self.headers, self.deadline_s, scheduled_ns=scheduled_ns
        )


async def run_closed_loop(
    send: Send, *, concurrency: int, requests: int, warmup: int = 0, first: int = 0
) -> LoadResult:
    """Keeps `concurrency` requests in flight until `requests` have been answered; they are numbered from `first` on.

    The warm-up is a closed loop of its own, over before the measured one begins.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    measured = first + warmup
    await _closed_loop(send, concurrency, range(first, measured))
    started_ns = time.monotonic_ns()
    samples = await _closed_loop(send, concurrency, range(measured, measured + requests))
    return LoadResult(samples, time.monotonic_ns() - started_ns)


async def _closed_loop(send: Send, concurrency: int, numbers: range) -> list[RequestSample]:
    samples: list[RequestSample] = []
    left = iter(numbers)

    async def user() -> None:
        for number in left:
            samples.append(await send(number, None))

    async with asyncio.TaskGroup() as users:
        for _ in range(min(concurrency, len(numbers))):
            users.create_task(user())
    return samples


async def run_open_loop(send: Send, arrivals: Iterator[float], *, requests: int, warmup: int = 0) -> LoadResult:
    """Sends `warmup + requests` requests when they are due, however many are still unanswered.

    Every latency counts from the scheduled arrival, so that a stall isn't hidden by the requests it held back;
    how late they were really sent is `lateness`. The wall time runs from the first measured arrival to the last answer.
    """
    tasks: list[asyncio.Task[RequestSample]] = []
    origin_ns = time.monotonic_ns()
    async with asyncio.TaskGroup() as group:
        for number, offset in zip(count(), islice(arrivals, warmup + requests), strict=False):
            due_ns = origin_ns + round(offset * 1e9)
            await _sleep_until(due_ns)
            tasks.append(group.create_task(_sample(send, number, due_ns)))
    samples = [task.result() for task in tasks[warmup:]]
    return LoadResult(samples, _wall_since_first_due(samples))


async def _sample(send: Send, number: int, due_ns: int) -> RequestSample:
    return await send(number, due_ns)


async def _sleep_until(due_ns: int) -> None:
    left_ns = due_ns - time.monotonic_ns()
    # Overdue arrivals yield as well: a burst must not keep the answers of its predecessors from being read.
    await asyncio.sleep(max(left_ns / 1e9, 0))


def _wall_since_first_due(samples: list[RequestSample]) -> int:
    return time.monotonic_ns() - samples[0].origin_ns if samples else 0
