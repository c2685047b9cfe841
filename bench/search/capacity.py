"""The search itself: a short closed loop for a scale, then one run of Poisson arrivals after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from bench.run import objectives
from bench.run.meter import Progress
from bench.run.objectives import Objectives, Rate, Share, Verdict
from bench.run.result import Result
from bench.run.spec import Closed, Open, Spec, SpecError
from bench.search.bracket import Bracket, Plan, bracket, may_stop_early, next_rate, rounded
from bench.search.confidence import Estimate, estimate
from bench.search.saturation import Watch
from bench.search.trial import Trial

# A server that turns half of its callers away keeps every promise to the other half.
IMPLIED = "error_rate<1%"

SCALE_CONCURRENCY = 16
SCALE_REQUESTS = 4 * SCALE_CONCURRENCY
START_SHARE = 0.5  # of the closed loop's rate: few limits on latency leave more
LOWEST_SHARE, HIGHEST_SHARE = 1 / 16, 64.0  # of the start, where nothing else is asked
WARMUP_SHARE = 0.2  # of a point's requests: an idle server needs some to get into its stride
LEAST_REQUESTS = 10
REST_S = 2.0  # for a server to notice that its callers have left

Load = Callable[[Spec, Callable[[Progress], None]], Awaitable[Result]]
"""Puts load on a server; what the callback raises ends it. As `bench.run.load.run`."""


@dataclass(frozen=True, slots=True)
class Search:
    """`spec` says everything but the arrivals. A point lasts `seconds` and has at least `requests`.

    With `longest`, in seconds, a rate so low that they would take more has fewer, but LEAST_REQUESTS.
    `low` and `high` bound the rates, in requests/s, or else `lowest_share` and HIGHEST_SHARE of the first one do;
    `width` is relative, `repeat` is a side's number of runs.
    """

    spec: Spec
    wanted: Objectives
    low: float | None = None
    high: float | None = None
    seconds: float = 60.0
    requests: int = 100
    width: float = 0.05
    repeat: int = 3
    rest_s: float = REST_S
    longest: float | None = None
    lowest_share: float = LOWEST_SHARE

    def plan(self, scale: float) -> Plan:
        """`scale` is the closed loop's rate. Raises SpecError for bounds that leave no rate."""
        start = rounded(START_SHARE * scale)
        low, high = self.low or rounded(self.lowest_share * start), self.high or rounded(HIGHEST_SHARE * start)
        if low > high:
            raise SpecError(f"no rate lies between {low:g} and {high:g} requests/s")
        return Plan(min(max(start, low), high), low, high, self.width, self.repeat)

    def at(self, rate: float, number: int) -> Spec:
        """The point of this number: a seed of its own gives it prompts that no prefix cache has seen before."""
        requests = max(self.requests, ceil(rate * self.seconds))
        if self.longest is not None:
            requests = min(requests, max(LEAST_REQUESTS, ceil(rate * self.longest)))
        warmup, seed = ceil(WARMUP_SHARE * requests), self.spec.seed + number + 1
        return replace(self.spec, load=Open("poisson", rate), requests=requests, warmup=warmup, seed=seed)


@dataclass(frozen=True)
class Point:
    """`result` is None for one that was cut short; `in_flight` has (seconds, requests) while it ran."""

    trial: Trial
    result: Result | None
    verdicts: Sequence[Verdict] = ()
    in_flight: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Capacity:
    """What a search has found so far; `scale` is its closed loop."""

    search: Search
    scale: Result
    plan: Plan
    points: Sequence[Point] = ()

    @cached_property
    def trials(self) -> list[Trial]:
        return [point.trial for point in self.points]

    @cached_property
    def bracket(self) -> Bracket:
        return bracket(self.trials)

    @cached_property
    def estimate(self) -> Estimate | None:
        return estimate(self.trials)

    @property
    def calm(self) -> Result | None:
        """The lowest-rate run within the objectives."""
        return next((result for trial, result in self._whole() if trial.met), None)

    @property
    def edge(self) -> Result | None:
        """The highest-rate run within the objectives that the bracket doesn't call luck."""
        low = self.bracket.low
        held = [result for trial, result in self._whole() if trial.met and low is not None and trial.rate <= low]
        return held[-1] if held else None

    @property
    def past(self) -> Result | None:
        """The lowest-rate run past the objectives that the bracket doesn't call bad luck."""
        high = self.bracket.high
        missed = (
            result for trial, result in self._whole() if not trial.met and high is not None and trial.rate >= high
        )
        return next(missed, None)

    def _whole(self) -> list[tuple[Trial, Result]]:
        """Those that were not cut short, by rate."""
        found = [(point.trial, point.result) for point in self.points if point.result is not None]
        return sorted(found, key=lambda pair: pair[0].rate)


def wanted(slo: str) -> Objectives:
    """Raises SpecError for what can't be read, and for a floor: below it no rate is too low, and capacity is a rate."""
    found = objectives.parse(slo)
    floors = [objective.name for objective in found.each if isinstance(objective, Rate)]
    if floors:
        raise SpecError(f"a search for capacity needs limits, and {', '.join(floors)} is what it finds")
    if any(isinstance(objective, Share) for objective in found.each):
        return found
    return objectives.parse(f"{slo},{IMPLIED}")


async def find(search: Search, load: Load, keep: Callable[[Capacity], None]) -> Capacity:
    """`keep` is given what is known after each point, so that an interrupt costs no more than the latest.

    Raises what `load` raises, and SpecError for a server that completes nothing.
    """
    closed = replace(search.spec, load=Closed(SCALE_CONCURRENCY), requests=SCALE_REQUESTS, warmup=SCALE_CONCURRENCY)
    scale = await load(closed, lambda progress: None)
    if not scale.summary.completed:
        raise SpecError(f"{search.spec.url} completed none of {SCALE_REQUESTS} requests")
    found = Capacity(search, scale, search.plan(scale.summary.requests_per_s))
    while (rate := next_rate(found.trials, found.plan)) is not None:
        point = await _point(search.at(rate, len(found.points)), search, load, may_stop_early(found.trials))
        found = replace(found, points=[*found.points, point])
        keep(found)
        if point.trial.stopped:
            await asyncio.sleep(search.rest_s)
    return found


class _Lost(Exception):
    """The run is, and ends here."""


async def _point(spec: Spec, search: Search, load: Load, may_stop: bool) -> Point:
    assert isinstance(spec.load, Open)
    watch = Watch(search.wanted)

    def on_progress(progress: Progress) -> None:
        watch(progress)
        if may_stop and watch.reason is not None:
            raise _Lost

    try:
        result = await load(spec, on_progress)
    except _Lost:
        return Point(Trial(spec.load.rate, spec.seed, False, watch.reason), None, in_flight=watch.in_flight)
    verdicts = search.wanted.judge(result)
    trial = Trial(spec.load.rate, spec.seed, all(verdict.met for verdict in verdicts))
    return Point(trial, result, verdicts, watch.in_flight)
