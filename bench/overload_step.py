"""The controller on a step of load: half of capacity, twice, half again, its limit read every second."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.arms import get
from bench.overload_arms import OURS, Station
from bench.overload_curve import Where, run_point
from bench.overload_plan import Phase, Workload, make_plan
from bench.overload_point import Objectives, Point

FACTORS = (0.5, 2.0, 0.5)
STEP_PLAN = 800  # its number among the plans
SAMPLE_S = 1.0
PREFIXES = ("streamgauge_admission_", "streamgauge_slo_")
LIMIT, IN_USE, QUEUED = (f"streamgauge_admission_{name}" for name in ("limit", "in_use", "queued"))


@dataclass(frozen=True)
class Reading:
    """Our admission's series at a moment; labels are summed over."""

    stamp_ns: int
    series: dict[str, float]


@dataclass(frozen=True)
class Step:
    """`rates` in requests/s, one for each phase of `phase_s` seconds, from `started_ns` on."""

    started_ns: int
    phase_s: float
    rates: Sequence[float]
    point: Point
    readings: Sequence[Reading]

    def as_dict(self) -> dict[str, object]:
        return {
            "phase_s": self.phase_s,
            "rates": list(self.rates),
            "started_ns": self.started_ns,
            "readings": [{"stamp_ns": one.stamp_ns, **one.series} for one in self.readings],
            "point": self.point.as_dict(),
        }

    def seconds(self, stamp_ns: int) -> float:
        return (stamp_ns - self.started_ns) / 1e9

    def line(self, name: str) -> tuple[list[float], list[float]]:
        """Seconds, and one series' values at them."""
        found = [(self.seconds(one.stamp_ns), one.series[name]) for one in self.readings if name in one.series]
        return [when for when, _ in found], [value for _, value in found]


async def run_step(
    station: Station, workload: Workload, objectives: Objectives, *, capacity: float, phase_s: float, seed: int
) -> Step:
    rates = [factor * capacity for factor in FACTORS]
    plan = make_plan(workload, [Phase(rate, phase_s) for rate in rates], seed=seed, number=STEP_PLAN)
    readings: list[Reading] = []
    async with _reading(station.port, readings):
        started_ns = time.monotonic_ns()
        point = await run_point(station, Where(OURS, 0, max(FACTORS), max(rates)), plan, objectives)
    return Step(started_ns, phase_s, rates, point, readings)


@asynccontextmanager
async def _reading(port: int, readings: list[Reading]) -> AsyncIterator[None]:
    task = asyncio.create_task(_read_on(port, readings), name="metrics-reader")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def _read_on(port: int, readings: list[Reading]) -> None:
    while True:
        try:
            _, body = await get(port, "/metrics")
            readings.append(Reading(time.monotonic_ns(), admission_series(body.decode())))
        except (OSError, TimeoutError):
            pass  # a gap in the plot says as much
        await asyncio.sleep(SAMPLE_S)


def admission_series(text: str) -> dict[str, float]:
    """Of Prometheus' text format. https://prometheus.io/docs/instrumenting/exposition_formats"""
    series: defaultdict[str, float] = defaultdict(float)
    for line in text.splitlines():
        if line.startswith(PREFIXES):
            name, value = line.rsplit(" ", 1)
            series[name.partition("{")[0]] += float(value)
    return dict(series)
