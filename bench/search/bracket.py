"""Which rate to try next: doubling or halving until the edge lies between two rates, bisection, repeats at both.

Every decision follows from the trials alone, so that a search can be retold from its record. Rates in requests/s.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

from bench.search.trial import Trial

STEP = 2.0  # from one rate to the next while the edge doesn't lie between two
# Of a bracket this narrow every run counts for the answer, and is not cut short.
NEAR = STEP


@dataclass(frozen=True, slots=True)
class Plan:
    """Tries `start` first and stays within `low` and `high`; ends at a relative `width` with `repeat` trials a side.

    Raises ValueError for rates that don't ascend from above zero.
    """

    start: float
    low: float
    high: float
    width: float = 0.05
    repeat: int = 3
    most_trials: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.start <= self.high:
            raise ValueError(f"rates ascend from above zero, and not as {self.low:g}, {self.start:g}, {self.high:g}")


class Bracket(NamedTuple):
    """`low` is the highest tried rate that is held to be within the objectives, `high` the next one tried."""

    low: float | None
    high: float | None

    @property
    def ratio(self) -> float:
        return inf if self.low is None or self.high is None else self.high / self.low


def bracket(trials: Sequence[Trial]) -> Bracket:
    """The split of the tried rates that the fewest trials contradict; of equally good ones the lowest.

    A lucky run far above the edge, or an unlucky one far below, is outvoted by what was found around it. This is the
    isotonic regression of outcomes, cut at one half (Robertson, Wright and Dykstra 1988).
    """
    rates = sorted({trial.rate for trial in trials})
    mistakes = [_mistakes(trials, split) for split in [*rates, inf]]
    below = mistakes.index(min(mistakes))
    return Bracket(rates[below - 1] if below else None, rates[below] if below < len(rates) else None)


def _mistakes(trials: Sequence[Trial], split: float) -> int:
    """Trials that missed below `split`, or met from there on."""
    return sum(trial.met == (trial.rate >= split) for trial in trials)


def next_rate(trials: Sequence[Trial], plan: Plan) -> float | None:
    """None once the edge is known as well as the plan asks for, or its trials are used up."""
    if not trials:
        return plan.start
    if len(trials) >= plan.most_trials:
        return None
    found = bracket(trials)
    if found.low is None or found.high is None:
        return _outward(trials, plan, found)
    if found.ratio > 1 + plan.width:
        return rounded(sqrt(found.low * found.high))
    return _repeat(trials, plan, found.low, found.high)


def may_stop_early(trials: Sequence[Trial]) -> bool:
    """Whether the next trial only serves to find the neighbourhood of the edge."""
    return bracket(trials).ratio > NEAR


def _outward(trials: Sequence[Trial], plan: Plan, found: Bracket) -> float | None:
    """On from an end, doubling or halving; once at the plan's own end, that is repeated."""
    if found.high is None:
        assert found.low is not None
        beyond = min(rounded(found.low * STEP), plan.high)
        known = found.low >= plan.high
    else:
        beyond = max(rounded(found.high / STEP), plan.low)
        known = found.high <= plan.low
    return _repeat(trials, plan, beyond) if known else beyond


def _repeat(trials: Sequence[Trial], plan: Plan, *rates: float) -> float | None:
    """The rate of these with the fewest trials, while it has fewer than the plan asks for."""
    counts = Counter(trial.rate for trial in trials)
    rarest = min(rates, key=lambda rate: counts[rate])
    return rarest if counts[rarest] < plan.repeat else None


def rounded(rate: float) -> float:
    """To four figures, for people to read."""
    return float(f"{rate:.4g}")
