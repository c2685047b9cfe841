"""One key floods, another asks once a second: how long the modest one waits in our queue."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

from bench.arrivals import constant
from bench.compare_arms import CHECKOUT, ComparisonError, clean_env
from bench.load import run_open_loop
from bench.metrics import percentile
from bench.overload_arms import Station
from bench.overload_capacity import RETRY_S
from bench.overload_plan import PLAN_STRIDE, Request, Workload
from bench.sample import RequestSample

FIRST_NUMBER = 600 * PLAN_STRIDE
MODEST_RATE = 1.0
MODEST_REQUEST = Request(0, 64, 32)
SETTLE_S = 10.0  # the flood's head start


@dataclass(frozen=True)
class Fairness:
    """The modest key alone and beside the flood; milliseconds of completed requests."""

    alone_ttft_ms: Sequence[float]
    beside_ttft_ms: Sequence[float]
    admit_ms: Sequence[float]
    modest_refused: int
    flood_completed: int
    flood_refused: int
    releases: int
    seconds: float

    @property
    def release_gap_ms(self) -> float | None:
        """Mean time between two permits that were given back."""
        return self.seconds * 1e3 / self.releases if self.releases else None

    @property
    def admit_p95_ms(self) -> float | None:
        return _p95(self.admit_ms)

    @property
    def alone_ttft_p95_ms(self) -> float | None:
        return _p95(self.alone_ttft_ms)

    @property
    def beside_ttft_p95_ms(self) -> float | None:
        return _p95(self.beside_ttft_ms)

    def as_dict(self) -> dict[str, object]:
        return {
            **asdict(self),
            "release_gap_ms": self.release_gap_ms,
            "admit_p95_ms": self.admit_p95_ms,
            "alone_ttft_p95_ms": self.alone_ttft_p95_ms,
            "beside_ttft_p95_ms": self.beside_ttft_p95_ms,
        }


def make_keys(file: Path, names: Sequence[str]) -> list[str]:
    """Raises ComparisonError when `streamgauge keys` fails."""
    return [_make_key(file, name) for name in names]


def _make_key(file: Path, name: str) -> str:
    argv = [sys.executable, "-m", "server", "keys", "add", name, "--file", str(file)]
    done = subprocess.run(argv, cwd=CHECKOUT, env=clean_env(), capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise ComparisonError(f"no key for {name}: {done.stderr[-2000:]}")
    return done.stdout.strip()


async def run_fairness(
    station: Station,
    workload: Workload,
    keys: Sequence[str],
    *,
    connections: int,
    seconds: float,
    settle_s: float = SETTLE_S,
) -> Fairness:
    """`keys` are the modest one's and the flood's."""
    modest, flood = (replace(station, headers={"Authorization": f"Bearer {key}"}) for key in keys)
    numbers = count(FIRST_NUMBER)
    alone = await _modest(modest, numbers.__next__, seconds)
    async with _flooding(flood, workload, connections) as flooded:
        await asyncio.sleep(settle_s)
        start_ns = time.monotonic_ns()
        beside = await _modest(modest, numbers.__next__, seconds)
        end_ns = time.monotonic_ns()
    done = [sample for sample in [*flooded, *beside] if start_ns <= (sample.done_ns or 0) < end_ns]
    return Fairness(
        alone_ttft_ms=_ttft_ms(alone),
        beside_ttft_ms=_ttft_ms(beside),
        admit_ms=[sample.timings["stages_ms"]["admit"] for sample in beside if sample.timings],
        modest_refused=sum(not sample.ok for sample in beside),
        flood_completed=sum(sample.ok for sample in flooded),
        flood_refused=sum(not sample.ok for sample in flooded),
        releases=len(done),
        seconds=(end_ns - start_ns) / 1e9,
    )


async def _modest(station: Station, number: Callable[[], int], seconds: float) -> list[RequestSample]:
    async def send(_: int, due_ns: int | None) -> RequestSample:
        return await station.send(replace(MODEST_REQUEST, number=number()), due_ns, timings=True)

    return (await run_open_loop(send, constant(MODEST_RATE), requests=round(MODEST_RATE * seconds))).samples


@asynccontextmanager
async def _flooding(station: Station, workload: Workload, connections: int) -> AsyncIterator[list[RequestSample]]:
    samples: list[RequestSample] = []
    requests = workload.requests(FIRST_NUMBER + PLAN_STRIDE // 2)

    async def user() -> None:
        while True:
            sample = await station.send(next(requests))
            samples.append(sample)
            if not sample.ok:
                await asyncio.sleep(RETRY_S)

    tasks = [asyncio.create_task(user(), name="flood") for _ in range(connections)]
    try:
        yield samples
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _ttft_ms(samples: Sequence[RequestSample]) -> list[float]:
    return [sample.ttft_ns / 1e6 for sample in samples if sample.ok and sample.ttft_ns is not None]


def _p95(values: Sequence[float]) -> float | None:
    return percentile(sorted(values), 95) if values else None
