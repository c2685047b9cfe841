"""What a run has found so far, and the few sums over its rounds that verdicts and reports share."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.overload_capacity import Capacity
from bench.overload_fairness import Fairness
from bench.overload_point import Answered, Point, refused_shares
from bench.overload_refusals import Refusals
from bench.overload_step import Step


@dataclass
class Results:
    """Grows as the run goes on; `facts` are its settings, machine and environments."""

    facts: dict[str, object]
    capacity: Capacity | None = None
    points: list[Point] = field(default_factory=list)
    step: Step | None = None
    refusals: list[Refusals] = field(default_factory=list)
    fairness: Fairness | None = None
    errors: list[str] = field(default_factory=list)

    @property
    def arms(self) -> list[str]:
        """In the order of their first points."""
        return list(dict.fromkeys(point.arm for point in self.points))

    def factors(self, arm: str) -> list[float]:
        return sorted({point.factor for point in self.points if point.arm == arm})

    def at(self, arm: str, factor: float) -> list[Point]:
        """The rounds of one point, those left out whose generator was late."""
        return [point for point in self.points if (point.arm, point.factor) == (arm, factor) and point.valid]

    def goodput(self, arm: str, factor: float) -> float | None:
        """Requests/s over all rounds."""
        return _mean([point.goodput for point in self.at(arm, factor)])

    def token_goodput(self, arm: str, factor: float) -> float | None:
        return _mean([point.token_goodput for point in self.at(arm, factor)])

    def best(self, arm: str) -> float | None:
        found = [value for factor in self.factors(arm) if (value := self.goodput(arm, factor)) is not None]
        return max(found, default=None)

    def answered(self, arm: str, factor: float) -> list[Answered]:
        return [one for point in self.at(arm, factor) for one in point.answered]

    def refused_shares(self, arm: str, factor: float) -> list[float]:
        return refused_shares(self.answered(arm, factor))

    def aa_width(self) -> float | None:
        """The largest |last round / first round - 1| of any arm's goodput at any load; None after a single round."""
        pairs = [(points[0].goodput, points[-1].goodput) for points in self._repeated()]
        return max((abs(last / first - 1) for first, last in pairs if first), default=None)

    def _repeated(self) -> list[list[Point]]:
        found = [self.at(arm, factor) for arm in self.arms for factor in self.factors(arm)]
        return [points for points in found if len(points) > 1]

    def as_dict(self) -> dict[str, object]:
        return {
            **self.facts,
            "errors": self.errors,
            "capacity": self.capacity and self.capacity.as_dict(),
            "aa_width": self.aa_width(),
            "points": [point.as_dict() for point in self.points],
            "step": self.step and self.step.as_dict(),
            "refusals": [each.as_dict() for each in self.refusals],
            "fairness": self.fairness and self.fairness.as_dict(),
        }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
