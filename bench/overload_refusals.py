"""What a refusal costs and how fast it comes, from a server whose every place is taken and which lets nobody wait.

A constant load of long answers holds the places and keeps the engine busy. Its own CPU per event, measured before and
after, is taken off what the server's process used while requests were refused.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from bench.arms import HOST
from bench.arrivals import constant
from bench.kept import kept_connection
from bench.load import run_open_loop
from bench.metrics import percentile
from bench.overload_arms import PATH, Station
from bench.overload_capacity import RETRY_S
from bench.overload_plan import PLAN_STRIDE, Request, Workload
from bench.overload_point import REFUSAL_STATUSES, reason
from bench.procfs import process_cpu
from bench.sample import RequestSample

HOLDERS = 16
HOLDER_TOKENS = 1900
HOLDERS_READY_S = 120.0
# The SLO controller is off: it would move the number of places.
SETTINGS = (
    f"admission.max_batch_size={HOLDERS}",
    "admission.max_queue_size=0",
    "admission.slo.ttft_p99_ms=null",
    "admission.slo.tpot_p99_ms=null",
)
FIRST_NUMBER = 700 * PLAN_STRIDE
BURST, STEADY, KEPT = "burst", "steady", "kept connections"
KEPT_CONNECTIONS = 8


T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """Of CLOCK_MONOTONIC ns, with the server's CPU time in it."""

    start_ns: int
    end_ns: int
    cpu_ns: int


@dataclass(frozen=True)
class Refusals:
    """`latencies_ns` run to the refusal's head, from the due time (steady) or from when the request was written.

    Both of `burst` and `steady` open a connection for each request, `kept connections` do not.
    """

    kind: str
    sent: int
    latencies_ns: Sequence[int]
    reasons: dict[str, int]
    cpu_ns: float

    @property
    def cpu_us(self) -> float | None:
        """Per refusal."""
        return self.cpu_ns / len(self.latencies_ns) / 1e3 if self.latencies_ns else None

    def latency_ms(self, q: float) -> float | None:
        return percentile(sorted(self.latencies_ns), q) / 1e6 if self.latencies_ns else None

    def as_dict(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "sent": self.sent,
            "refused": len(self.latencies_ns),
            "reasons": self.reasons,
            "cpu_us_per_refusal": self.cpu_us,
            "latency_ms": {f"p{q}": self.latency_ms(q) for q in (50, 95, 99, 100)},
            "latencies_ns": list(self.latencies_ns),
        }


async def run_refusals(
    station: Station, workload: Workload, *, burst: int, rate: float, seconds: float
) -> list[Refusals]:
    """Raises TimeoutError when the places don't fill."""
    requests = list(islice(workload.requests(FIRST_NUMBER), max(burst, round(rate * seconds))))
    steady = requests[: round(rate * seconds)]
    work: dict[str, Callable[[], Awaitable[list[RequestSample]]]] = {
        BURST: lambda: _burst(station, requests[:burst]),
        STEADY: lambda: _stream(station, steady, rate),
        KEPT: lambda: _kept(station, steady, rate),
    }
    async with holding(station) as held:
        before, _ = await _window(station.pid, lambda: asyncio.sleep(seconds / 2))
        found = {kind: await _window(station.pid, send) for kind, send in work.items()}
        after, _ = await _window(station.pid, lambda: asyncio.sleep(seconds / 2))
    events = events_in(held, before) + events_in(held, after)
    per_event = (before.cpu_ns + after.cpu_ns) / max(1, events)
    return [
        _refusals(kind, samples, window.cpu_ns - per_event * events_in(held, window))
        for kind, (window, samples) in found.items()
    ]


def _refusals(kind: str, samples: Sequence[RequestSample], cpu_ns: float) -> Refusals:
    refused = [sample for sample in samples if sample.status in REFUSAL_STATUSES and sample.headers_ns is not None]
    latencies = [sample.headers_ns - sample.origin_ns for sample in refused if sample.headers_ns is not None]
    reasons = Counter(f"{sample.status or '-'} {reason(sample)}" for sample in samples)
    return Refusals(kind, len(samples), latencies, dict(reasons), cpu_ns)


async def _window(pid: int, work: Callable[[], Awaitable[T]]) -> tuple[Window, T]:
    start_ns, cpu_ns = time.monotonic_ns(), process_cpu(pid).run_ns
    done = await work()
    return Window(start_ns, time.monotonic_ns(), process_cpu(pid).run_ns - cpu_ns), done


def events_in(samples: Sequence[RequestSample], window: Window) -> int:
    return sum(window.start_ns <= event.stamp_ns < window.end_ns for sample in samples for event in sample.events)


async def _burst(station: Station, requests: Sequence[Request]) -> list[RequestSample]:
    return await asyncio.gather(*(station.send(request) for request in requests))


async def _stream(station: Station, requests: Sequence[Request], rate: float) -> list[RequestSample]:
    async def send(index: int, due_ns: int | None) -> RequestSample:
        return await station.send(requests[index], due_ns)

    return (await run_open_loop(send, constant(rate), requests=len(requests))).samples


async def _kept(station: Station, requests: Sequence[Request], rate: float) -> list[RequestSample]:
    left = iter(requests)
    samples: list[RequestSample] = []

    async def user() -> None:
        async with kept_connection(HOST, station.port) as connection:
            for request in left:
                samples.append(await connection.send(PATH, request.body(station.model), deadline_s=station.deadline_s))
                await asyncio.sleep(KEPT_CONNECTIONS / rate)

    async with asyncio.TaskGroup() as users:
        for _ in range(KEPT_CONNECTIONS):
            users.create_task(user())
    return samples


@asynccontextmanager
async def holding(station: Station) -> AsyncIterator[list[RequestSample]]:
    """Every place taken by a long answer; the samples grow meanwhile. Raises TimeoutError when they don't fill."""
    samples: list[RequestSample] = []
    tasks = [asyncio.create_task(_hold(station, place, samples), name="holder") for place in range(HOLDERS)]
    try:
        async with asyncio.timeout(HOLDERS_READY_S):
            # Polled: a sample tells nobody that it has grown.
            while sum(sample.generated_events > 0 for sample in samples) < HOLDERS:  # noqa: ASYNC110
                await asyncio.sleep(RETRY_S)
        yield samples
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _hold(station: Station, place: int, samples: list[RequestSample]) -> None:
    number = FIRST_NUMBER + PLAN_STRIDE // 2 + place
    while True:
        sample = RequestSample()
        samples.append(sample)
        await station.send(Request(number, 16, HOLDER_TOKENS), sample=sample)
        number += HOLDERS
        await asyncio.sleep(0 if sample.ok else RETRY_S)
