"""The case's experiments. Each is a few simulations over one trace; none depends on another's order."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bench.batching_chapter import BOLDER, BURST_S, DEVICE, DURATION_S, DUTY, GREEDY, RATE, TIMID
from bench.batching_figures import Arm, Figures, busy_share, measure
from bench.batching_search import RATE_STEP, Found, best, highest_rate, p99_ms, search
from bench.batching_sim import Batching, Policy, simulate
from bench.batching_trace import Trace, Traffic

TOP_RATE = 1600.0
RATES = (50, 150, 300, 450, 600, 900, 1200)
DEVICE_RATES = (50, 150, 450, 900)
BURST_LENGTHS_S = (0.002, 0.005, 0.01, 0.02, 0.05)
SEEDS = 5
HIGH_BUSY = 0.95


@dataclass(frozen=True, slots=True)
class Point:
    arm: Arm
    rate: float
    figures: Figures


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """P99 in ms at one load: the chapter's setting and the best one, each on one device and on two."""

    traffic: str
    rate: int
    count: int
    timid: tuple[float, float]
    best: tuple[float, float]

    def verdict(self, bound_ms: float) -> str:
        """What brings P99 within the bound."""
        (timid, timid_two), (better, better_two) = self.timid, self.best
        if timid <= bound_ms:
            return "nothing to mend"
        if better <= bound_ms:
            return "the setting, or a device" if timid_two <= bound_ms else "the setting; a device alone does not"
        if better_two <= bound_ms:
            return "a device" if timid_two <= bound_ms else "both together"
        return "not even both"


@dataclass(frozen=True, slots=True)
class Pushed:
    """A batching at the highest rate within the bound (None: there is none), and at the highest below HIGH_BUSY."""

    batching: Batching
    within: Point | None
    high: Point


@dataclass(frozen=True, slots=True)
class Spread:
    """Highest rates within the bound, one per seed."""

    batching: Batching
    rates: Sequence[int]


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    bound_ms: float
    found: Sequence[Found]
    best: Found
    best_sealed: Found
    at_peak: Sequence[Point]
    sweep: Sequence[Point]
    devices: Sequence[DeviceRow]
    pushed: Sequence[Pushed]
    burst_lengths: Sequence[tuple[float, Figures]]
    spread: Sequence[Spread]


def run_case(seed: int, bound_ms: float, duration_s: float = DURATION_S) -> Case:
    """Everything, from one seed: the bound on P99 in milliseconds, the length of each trace in seconds."""
    bursts = Traffic(BURST_S, DUTY, duration_s)
    smooth = replace(bursts, duty=1.0)
    trace = Trace(bursts, TOP_RATE, seed)
    found = search(trace, DEVICE, bound_ms)
    winner = best(found)
    sealed = best(each for each in found if each.batching.policy is Policy.SEAL_EARLY)
    compared = unique([TIMID, BOLDER, sealed.batching, GREEDY, winner.batching])
    return Case(
        seed=seed,
        bound_ms=bound_ms,
        found=found,
        best=winner,
        best_sealed=sealed,
        at_peak=points(trace, [*map(Arm, compared), Arm(TIMID, 2), Arm(winner.batching, 2)], [RATE]),
        sweep=points(trace, map(Arm, compared), RATES),
        devices=[
            *device_rows("bursts", trace, winner.batching),
            *device_rows("smooth", Trace(smooth, TOP_RATE, seed), winner.batching),
        ],
        pushed=[push(trace, batching, bound_ms) for batching in compared],
        burst_lengths=[(length, _at_peak(replace(bursts, burst_s=length), seed)) for length in BURST_LENGTHS_S],
        spread=spread(bursts, compared, seed, bound_ms),
    )


def unique(batchings: Iterable[Batching]) -> list[Batching]:
    return list(dict.fromkeys(batchings))


def points(trace: Trace, arms: Iterable[Arm], rates: Sequence[float]) -> list[Point]:
    return [Point(arm, rate, measure(trace.at(rate), arm, DEVICE)) for arm in arms for rate in rates]


def device_rows(traffic: str, trace: Trace, better: Batching) -> list[DeviceRow]:
    def pair(rate: int, batching: Batching) -> tuple[float, float]:
        one, two = (p99_ms(trace, rate, Arm(batching, devices), DEVICE) for devices in (1, 2))
        return one, two

    return [
        DeviceRow(traffic, rate, len(trace.at(rate)), pair(rate, TIMID), pair(rate, better)) for rate in DEVICE_RATES
    ]


def push(trace: Trace, batching: Batching, bound_ms: float) -> Pushed:
    """The same batching under the bound, and as busy as it gets below HIGH_BUSY."""
    arm = Arm(batching)

    def too_busy(rate: int) -> bool:
        return busy_share(simulate(trace.at(rate), batching, DEVICE)) > HIGH_BUSY

    rates = range(RATE_STEP, int(trace.top_rate) + 1, RATE_STEP)
    high = rates[max(bisect_left(rates, True, key=too_busy) - 1, 0)]
    bounded = highest_rate(trace, arm, DEVICE, bound_ms)
    (at_high,) = points(trace, [arm], [high])
    return Pushed(batching, points(trace, [arm], [bounded])[0] if bounded else None, at_high)


def spread(traffic: Traffic, batchings: Sequence[Batching], seed: int, bound_ms: float) -> list[Spread]:
    """The same rates on other traces: what of a difference is the trace's."""
    traces = [Trace(traffic, TOP_RATE, seed + turn) for turn in range(SEEDS)]
    return [
        Spread(batching, [highest_rate(trace, Arm(batching), DEVICE, bound_ms) for trace in traces])
        for batching in batchings
    ]


def _at_peak(traffic: Traffic, seed: int) -> Figures:
    return measure(Trace(traffic, RATE, seed).at(RATE), Arm(TIMID), DEVICE)
