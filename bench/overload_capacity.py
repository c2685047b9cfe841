"""How much a server can do when its clients wait for it: requests/s in a closed loop, and prompt tokens/s."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from bench.overload_arms import Station
from bench.overload_plan import PLAN_STRIDE, Request, Workload
from bench.sample import RequestSample

# A client that was turned away comes back after this long: a tight loop of refusals would be the load.
RETRY_S = 0.1
PREFILL_CONCURRENCY = 8
FIRST_PLAN = 900  # numbers that no point's plan reaches


@dataclass(frozen=True)
class ClosedLoop:
    concurrency: int
    completed: int
    output_tokens: int
    seconds: float

    @property
    def requests_per_s(self) -> float:
        return self.completed / self.seconds


@dataclass(frozen=True)
class Capacity:
    """`source` is the arm it was measured on, or `given`. Rates per second."""

    source: str
    requests_per_s: float
    prefill_tokens_per_s: float
    sweep: Sequence[ClosedLoop] = ()

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


async def measure_capacity(
    station: Station, workload: Workload, *, source: str, concurrencies: Sequence[int], warmup_s: float, seconds: float
) -> Capacity:
    """The best of the concurrencies. Raises ValueError when nothing was completed."""
    sweep = []
    for index, concurrency in enumerate(concurrencies):
        requests = workload.requests((FIRST_PLAN + index) * PLAN_STRIDE)
        samples = await steady(_sender(station, requests), concurrency, warmup_s, seconds)
        tokens = sum(sample.output_tokens or 0 for sample in samples)
        sweep.append(ClosedLoop(concurrency, len(samples), tokens, seconds))
    prompts = workload.requests((FIRST_PLAN + len(concurrencies)) * PLAN_STRIDE)
    prefill = await steady(_sender(station, prompts, max_tokens=1), PREFILL_CONCURRENCY, warmup_s, seconds)
    prompt_tokens = sum(sample.prompt_tokens or 0 for sample in prefill)
    best = max(loop.requests_per_s for loop in sweep)
    if not best or not prompt_tokens:
        raise ValueError(f"{source} completed nothing in its closed loop")
    return Capacity(source, best, prompt_tokens / seconds, sweep)


def _sender(
    station: Station, requests: Iterator[Request], max_tokens: int | None = None
) -> Callable[[], Awaitable[RequestSample]]:
    return lambda: station.send(next(requests), max_tokens=max_tokens)


async def steady(
    send: Callable[[], Awaitable[RequestSample]], concurrency: int, warmup_s: float, seconds: float
) -> list[RequestSample]:
    """What was completed within the `seconds` that follow the warm-up, `concurrency` requests in flight throughout.

    A fixed number of requests would end with ever fewer in flight, and understate.
    """
    samples: list[RequestSample] = []

    async def user() -> None:
        while True:
            sample = await send()
            samples.append(sample)
            if not sample.ok:
                await asyncio.sleep(RETRY_S)

    opens_ns = time.monotonic_ns() + round(warmup_s * 1e9)
    closes_ns = opens_ns + round(seconds * 1e9)
    with suppress(TimeoutError):
        async with asyncio.timeout(warmup_s + seconds), asyncio.TaskGroup() as users:
            for _ in range(concurrency):
                users.create_task(user())
    return [sample for sample in samples if sample.done_ns is not None and opens_ns <= sample.done_ns < closes_ns]
