"""What follows from the figures of trials: who goes on, whether a pairing is won, and what the whole search says."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np

from bench.regression.bootstrap import RESAMPLES, Counts, Values, as_it_was, interval, resample
from bench.run.objectives import Objectives
from bench.run.result import Result
from bench.tune.space import Changes, key

LEAST_PAIRED = 6  # candidates, before "none better" is more than a lack of evidence
MOST_PAIRED = 8
ROUNDS = 2  # that a candidate has to win
# Of so many comparisons one may be won by chance: each is held to its share of the error (Bonferroni).
CONFIDENCE = 1 - 0.05 / MOST_PAIRED
OUTSTANDING = 2.0  # times the incumbent's goodput in a first short trial
HALF = 0.5  # good requests added to either side, so that a ratio stays finite where one has none (Haldane 1956)


@dataclass(frozen=True)
class Visit:
    """One run of load: of each request whether it met the objectives, and the wall time in seconds."""

    good: Sequence[bool]
    wall_s: float
    faults: Sequence[str] = ()

    @classmethod
    def of(cls, result: Result, wanted: Objectives) -> "Visit":
        return cls([wanted.met_by(sample) for sample in result.samples], result.wall_ns / 1e9, result.faults)

    @property
    def share(self) -> float:
        """Of good requests; 0 of none."""
        return sum(self.good) / len(self.good) if self.good else 0.0

    @property
    def goodput(self) -> float:
        """Good requests per second, and half a request."""
        return (sum(self.good) + HALF) / self.wall_s

    def as_dict(self) -> dict[str, object]:
        good, share = sum(self.good), round(self.share, 4)
        return {"good": good, "requests": len(self.good), "share": share, "wall_s": self.wall_s, "faults": self.faults}


@dataclass(frozen=True)
class Trial:
    """A short run, of a `rung` of the halving, that ended at `at_s`. `error` is why the server did not serve."""

    changes: Changes
    rung: int
    at_s: float
    visit: Visit | None
    error: str | None = None

    @property
    def score(self) -> float:
        return self.visit.share if self.visit is not None else 0.0

    def as_dict(self) -> dict[str, object]:
        visit = None if self.visit is None else self.visit.as_dict()
        return {**asdict_without(self, "visit"), "score": self.score, "visit": visit}


@dataclass(frozen=True)
class Ratio:
    """The candidate's goodput over the incumbent's, its interval, and the A/A width on the same scale."""

    value: float
    low: float
    high: float
    aa_width: float
    confidence: float

    @property
    def won(self) -> bool:
        """The interval is above one, and the ratio further above it than two visits of one server are apart.

        In simulated rounds whose visits differ by 10, 30 and 50 % (standard deviation), equal servers won 0.4, 1.6 and
        7 % of them, and 1.9 times the goodput 80, 48 and 31 %. With the whole interval above that width it was 0, 0.4
        and 3 %, and 38, 21 and 11 %: too strict for what has to be won twice.
        """
        return self.low > 1 and self.value > 1 + self.aa_width


@dataclass(frozen=True)
class Round:
    """The incumbent and a candidate visited in turn, A B B A: each side's visits, and what they come to."""

    base: Sequence[Visit]
    other: Sequence[Visit]
    ratio: Ratio

    @property
    def visits(self) -> Sequence[Visit]:
        return [*self.base, *self.other]

    def as_dict(self) -> dict[str, object]:
        """With the verdict."""
        visits = {name: [visit.as_dict() for visit in getattr(self, name)] for name in ("base", "other")}
        return {**visits, "ratio": {**asdict(self.ratio), "won": self.ratio.won}}


@dataclass(frozen=True)
class Pairing:
    """A candidate's rounds with the incumbent at `rate` requests/s.

    Past a server's edge its visits differ by much, and two of them can look alike by chance. So a round that is won is
    followed by another, with other requests, and both have to be won: by chance that is the square of seldom.
    """

    incumbent: Changes
    changes: Changes
    rate: float
    at_s: float
    rounds: Sequence[Round]

    @property
    def ratio(self) -> Ratio:
        """Of the last round: the first was chosen by what it said."""
        return self.rounds[-1].ratio

    @property
    def won(self) -> bool:
        return len(self.rounds) >= ROUNDS and all(each.ratio.won for each in self.rounds)

    @property
    def open(self) -> bool:
        """Won once, and not yet again."""
        return len(self.rounds) < ROUNDS and self.ratio.won

    def as_dict(self) -> dict[str, object]:
        rounds = [each.as_dict() for each in self.rounds]
        return {**asdict_without(self, "rounds"), "won": self.won, "rounds": rounds}


class Verdict(StrEnum):
    BETTER = "a better setting was found"
    NONE_BETTER = "no setting is better"
    INSUFFICIENT = "insufficient evidence"


def asdict_without(record: Trial | Pairing, *names: str) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in names}


def stands_out(incumbent: Trial, trial: Trial) -> bool:
    """By so much, with an interval above one, that it is paired before anything else is tried: where the settings are
    bad, everything takes long until they are replaced. It still has to win its rounds."""
    if incumbent.visit is None or trial.visit is None:
        return False
    found = ratio([incumbent.visit], [trial.visit])
    return found.value >= OUTSTANDING and found.low > 1


def ranked(trials: Sequence[Trial]) -> list[Changes]:
    """All whose server came up, those of the longest runs first, the best of equally long ones before the others."""
    broken = [key(trial.changes) for trial in trials if trial.error is not None]
    order = sorted(trials, key=lambda trial: (-trial.rung, -trial.score))
    found = {key(trial.changes): trial.changes for trial in order}
    return [changes for name, changes in found.items() if name not in broken]


def survivors(trials: Sequence[Trial]) -> list[Changes]:
    """The better half of one rung, best first; of equals those that came first. A server that didn't come up is out."""
    ran = sorted((trial for trial in trials if trial.error is None), key=lambda trial: -trial.score)
    return [trial.changes for trial in ran[: -(-len(trials) // 2)]]


def ratio(base: Sequence[Visit], other: Sequence[Visit], seed: int = 0) -> Ratio:
    """By the two-stage bootstrap of `bench.regression.bootstrap`; equal seeds give equal intervals.

    Raises ValueError where a side has no visit or a visit no request.
    """
    if not all(visits and all(visit.good for visit in visits) for visits in (base, other)):
        raise ValueError("nothing was measured")
    rng = np.random.default_rng(seed)
    drawn = [_goodputs(side, resample([len(visit.good) for visit in side], RESAMPLES, rng)) for side in (base, other)]
    found = interval(drawn[1] / drawn[0], CONFIDENCE)
    assert found is not None
    a, b = (_goodputs(side, as_it_was(sum(len(visit.good) for visit in side)))[0] for side in (base, other))
    return Ratio(float(b / a), *found, max(aa_width(base), aa_width(other)), CONFIDENCE)


def _goodputs(visits: Sequence[Visit], counts: Counts) -> Values:
    """In each resample; arrivals are open, so that each request brings an equal part of its visit's wall time."""
    good = np.concatenate([np.array(visit.good, dtype=np.float64) for visit in visits])
    wall = np.concatenate([np.full(len(visit.good), visit.wall_s / len(visit.good)) for visit in visits])
    found: Values = (counts @ good + HALF) / (counts @ wall)
    return found


def aa_width(visits: Sequence[Visit]) -> float:
    """By how much visits of one server differ, of their mean."""
    goodputs = [visit.goodput for visit in visits]
    return (max(goodputs) - min(goodputs)) * len(goodputs) / sum(goodputs)


def conclude(pairings: Sequence[Pairing]) -> Verdict:
    """A pairing that is won is evidence by itself. That none is better takes several, and none of them open."""
    if any(pairing.won for pairing in pairings):
        return Verdict.BETTER
    if len(pairings) < LEAST_PAIRED or any(pairing.open for pairing in pairings):
        return Verdict.INSUFFICIENT
    return Verdict.NONE_BETTER


def kept(pairings: Sequence[Pairing]) -> Pairing | None:
    """The pairing that made the last incumbent; None where that is the settings as they were."""
    return next((pairing for pairing in reversed(pairings) if pairing.won), None)
