"""The order of an overload run: capacity, the curve, then the scenarios of our server alone."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.arms import Arm, ArmError
from bench.compare_arms import ComparisonError
from bench.overload_arms import OURS, STOCK, STOCK_QUEUE, Garage, with_queue_limit, with_settings
from bench.overload_capacity import Capacity, measure_capacity
from bench.overload_curve import Where, run_point
from bench.overload_fairness import make_keys, run_fairness
from bench.overload_plan import Phase, Plan, Workload, make_plan
from bench.overload_point import Objectives
from bench.overload_refusals import SETTINGS, run_refusals
from bench.overload_results import Results
from bench.overload_step import run_step

FAILURES = (ArmError, ComparisonError, OSError, TimeoutError, ValueError, ExceptionGroup)
CAPACITY_WARMUP_S = 10.0


@dataclass(frozen=True)
class Settings:
    """`factors` are multiples of capacity. A scenario that is None is not run.

    `refusals` is (burst, requests/s, seconds), `fairness` is (connections of the flood, seconds).
    """

    workload: Workload
    objectives: Objectives
    factors: Sequence[float]
    rounds: int
    seconds: float
    arrivals: int
    warmup_s: float
    seed: int
    capacity: float | None
    prefill_rate: float
    concurrencies: Sequence[int]
    capacity_seconds: float
    step_seconds: float | None
    refusals: tuple[int, float, float] | None
    fairness: tuple[int, float] | None


class Overload:
    """Fills `results`, and calls `save` after each part. A part that fails is noted, the others go on."""

    def __init__(
        self,
        arms: Mapping[str, Arm],
        settings: Settings,
        garage: Garage,
        results: Results,
        save: Callable[[Results], None],
    ) -> None:
        self.results = results
        self._arms = dict(arms)
        self._settings = settings
        self._garage = garage
        self._save = save

    async def run(self) -> None:
        settings = self._settings
        if settings.factors or settings.step_seconds is not None:
            await self._part("capacity", self._find_capacity)
        if self.results.capacity is not None:
            await self._curve(self.results.capacity)
        if OURS in self._arms:
            await self._scenarios()

    async def _scenarios(self) -> None:
        if self._settings.step_seconds is not None and self.results.capacity is not None:
            await self._part("step", self._step)
        if self._settings.refusals is not None:
            await self._part("refusals", self._refusals)
        if self._settings.fairness is not None:
            await self._part("fairness", self._fairness)

    async def _part(self, label: str, work: Callable[[], Awaitable[None]]) -> None:
        print(f"{label} ...", file=sys.stderr, flush=True)
        try:
            await work()
        except FAILURES as error:
            self.results.errors.append(f"{label}: {error or type(error).__name__}")
            print(self.results.errors[-1], file=sys.stderr, flush=True)
        self._save(self.results)

    async def _find_capacity(self) -> None:
        settings = self._settings
        if settings.capacity is not None:
            capacity = Capacity("given", settings.capacity, settings.prefill_rate)
        else:
            source = STOCK if STOCK in self._arms else next(iter(self._arms))
            capacity = await self._measure_capacity(source)
        if STOCK_QUEUE in self._arms:
            tokens = round(settings.objectives.ttft_s * capacity.prefill_tokens_per_s)
            if not tokens:
                raise ComparisonError("stock-queue needs a prefill rate: give --prefill-rate beside --capacity")
            self._arms[STOCK_QUEUE] = with_queue_limit(self._arms[STOCK_QUEUE], tokens)
        self.results.capacity = capacity

    async def _measure_capacity(self, source: str) -> Capacity:
        settings = self._settings
        async with self._garage.start(self._arms[source], f"capacity-{source}") as station:
            return await measure_capacity(
                station,
                settings.workload,
                source=source,
                concurrencies=settings.concurrencies,
                warmup_s=min(CAPACITY_WARMUP_S, settings.capacity_seconds),
                seconds=settings.capacity_seconds,
            )

    async def _curve(self, capacity: Capacity) -> None:
        for turn, index, name in visiting_order(list(self._arms), len(self._settings.factors), self._settings.rounds):
            factor = self._settings.factors[index]
            where = Where(name, turn, factor, factor * capacity.requests_per_s)
            await self._part(f"round {turn}, {factor:g}x, {name}", partial(self._point, where, index))

    async def _point(self, where: Where, index: int) -> None:
        label = f"round{where.round}-{where.factor:g}x-{where.arm}"
        async with self._garage.start(self._arms[where.arm], label) as station:
            point = await run_point(station, where, self._plan(where.rate, index), self._settings.objectives)
        self.results.points.append(point)
        print(f"  good {point.goodput:.3g}/s of {where.rate:.3g}/s", file=sys.stderr, flush=True)

    def _plan(self, rate: float, index: int) -> Plan:
        settings = self._settings
        phase = Phase(rate, settings.seconds, settings.arrivals)
        return make_plan(
            settings.workload, [phase], seed=settings.seed + index, number=index + 1, warmup_s=settings.warmup_s
        )

    async def _step(self) -> None:
        settings, capacity = self._settings, self.results.capacity
        assert capacity is not None and settings.step_seconds is not None
        async with self._garage.start(self._arms[OURS], "step") as station:
            self.results.step = await run_step(
                station,
                settings.workload,
                settings.objectives,
                capacity=capacity.requests_per_s,
                phase_s=settings.step_seconds,
                seed=settings.seed,
            )

    async def _refusals(self) -> None:
        assert self._settings.refusals is not None
        burst, rate, seconds = self._settings.refusals
        async with self._garage.start(with_settings(self._arms[OURS], *SETTINGS), "refusals") as station:
            self.results.refusals = await run_refusals(
                station, self._settings.workload, burst=burst, rate=rate, seconds=seconds
            )

    async def _fairness(self) -> None:
        assert self._settings.fairness is not None
        connections, seconds = self._settings.fairness
        with TemporaryDirectory() as folder:
            file = Path(folder) / "keys.json"
            keys = make_keys(file, ["modest", "flood"])
            arm = with_settings(self._arms[OURS], f"keys.file={file}")
            async with self._garage.start(arm, "fairness") as station:
                self.results.fairness = await run_fairness(
                    station, self._settings.workload, keys, connections=connections, seconds=seconds
                )


def visiting_order(arms: Sequence[str], loads: int, rounds: int) -> list[tuple[int, int, str]]:
    """(round, index of the load, arm): A B C, then C B A at the next load; a further round begins the other way."""
    order = []
    for turn in range(rounds):
        for index in range(loads):
            order += [(turn, index, arm) for arm in (arms if (turn + index) % 2 == 0 else arms[::-1])]
    return order
