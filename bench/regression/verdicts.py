"""What follows from two arms' visits, measure by measure.

With the change of B against A, its 95 % interval by bootstrap, and the A/A width (by how much two visits of one arm
differ, at most):

* `same`: the whole interval is within the tolerance;
* `worse`, `better`: the interval leaves out "no change", and the change exceeds both the tolerance and the A/A width,
  below which a difference is none;
* `can't tell`: anything else, and whatever rests on too few samples.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np

from bench.regression.bootstrap import RESAMPLES, Counts, Values, as_it_was, interval, resample
from bench.regression.measures import MEASURES, Arm, Measure

TOLERANCE = 0.05
POINTS = 1.0  # the tolerance of what is compared by difference: points of a percentage


class Outcome(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNKNOWN = "can't tell"


@dataclass(frozen=True)
class Verdict:
    """`change` is B / A - 1, or B - A where `as_difference`; `interval` and `aa_width` likewise. None: undefined."""

    measure: str
    unit: str
    base: float | None
    other: float | None
    as_difference: bool
    change: float | None
    interval: tuple[float, float] | None
    aa_width: float | None
    outcome: Outcome
    why: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def verdicts(
    base: Arm,
    other: Arm,
    *,
    tolerance: float = TOLERANCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    measures: Sequence[Measure] = MEASURES,
) -> list[Verdict]:
    """`other` against `base`, by each measure that either has; equal seeds give equal intervals."""
    rng = np.random.default_rng(seed)
    draws = resample(base.sizes, resamples, rng), resample(other.sizes, resamples, rng)
    known = [measure for measure in measures if measure.known(base) or measure.known(other)]
    return [_verdict(measure, (base, other), draws, tolerance) for measure in known]


def _verdict(measure: Measure, arms: tuple[Arm, Arm], draws: tuple[Counts, Counts], tolerance: float) -> Verdict:
    base, other = (_figure(measure, arm) for arm in arms)
    change = _finite(_change(measure, np.array([base]), np.array([other]))[0])
    changes = _change(measure, *(measure.figures(arm, drawn) for arm, drawn in zip(arms, draws, strict=True)))
    found, aa = _interval(measure, arms, changes), aa_width(measure, arms)
    outcome, why = _outcome(measure, change, found, aa, POINTS if measure.as_difference else tolerance)
    if shortage := next(filter(None, (measure.shortage(arm) for arm in arms)), ""):
        outcome, why = Outcome.UNKNOWN, shortage
    return Verdict(
        measure=measure.name,
        unit=measure.unit,
        base=_finite(base),
        other=_finite(other),
        as_difference=measure.as_difference,
        change=change,
        interval=found,
        aa_width=aa,
        outcome=outcome,
        why=why,
    )


def _figure(measure: Measure, arm: Arm) -> float:
    return float(measure.figures(arm, as_it_was(len(arm.samples)))[0])


def _change(measure: Measure, base: Values, other: Values) -> Values:
    if measure.as_difference:
        return other - base
    ratio: Values = np.divide(other, base, out=np.full(len(base), np.nan), where=base > 0)
    return ratio - 1


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _interval(measure: Measure, arms: tuple[Arm, Arm], changes: Values) -> tuple[float, float] | None:
    found = interval(changes)
    if found is None or not measure.as_difference:
        return found
    base, other = (_unseen(measure, arm) for arm in arms)
    return found[0] - base, found[1] + other


def _unseen(measure: Measure, arm: Arm) -> float:
    """What an arm without a failure may yet have of them, in points: at most 3 / n at 95 % (the rule of three).

    A bootstrap can't draw what it has not seen.
    """
    return 0.0 if _figure(measure, arm) else 300 / len(arm.samples)


def aa_width(measure: Measure, arms: Sequence[Arm]) -> float | None:
    """The largest change from the first visit to the last of an arm in a round; None where none was visited twice."""
    widths = [abs(change) for arm in arms for pair in arm.pairs if (change := _aa(measure, pair)) is not None]
    return max(widths, default=None)


def _aa(measure: Measure, pair: tuple[Arm, Arm]) -> float | None:
    first, second = (np.array([_figure(measure, arm)]) for arm in pair)
    return _finite(_change(measure, first, second)[0])


def _outcome(
    measure: Measure,
    change: float | None,
    found: tuple[float, float] | None,
    aa: float | None,
    tolerance: float,
) -> tuple[Outcome, str]:
    if change is None or found is None:
        return Outcome.UNKNOWN, "undefined"
    low, high = found
    if -tolerance <= low and high <= tolerance:
        return Outcome.SAME, ""
    if low <= 0 <= high or abs(change) <= tolerance:
        return Outcome.UNKNOWN, "the interval is wider than the tolerance"
    if aa is not None and abs(change) <= aa:
        return Outcome.UNKNOWN, "two visits of one server differ by more"
    return (Outcome.WORSE if (change > 0) == measure.lower_is_better else Outcome.BETTER), ""
