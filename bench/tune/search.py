"""The search itself: the incumbent's edge, short trials of candidates, longer ones of the better half, then pairings.

A candidate that stands out in its first trial is paired at once. One that wins is the incumbent from then on, with an
edge of its own, and what is tried after it is tried over its changes; trials begin anew, since theirs were at another
rate.

A fixed rate tells settings apart only where it is too much for the worse ones: at the edge itself all requests are good
but one in a hundred, and nothing can be better than that. So trials and pairings are at a rate above the highest at
which the incumbent meets its objectives, and at no less than it completes in a closed loop: where settings are so bad
that hardly any rate is met, requests would come too seldom to be told apart in any budget. For the same reason a
winner's rate is no less than that at which it won: edges are found by runs so short that one late request moves them.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from bench.arms import ArmError
from bench.run.meter import Progress
from bench.run.result import Result
from bench.run.spec import Lost, Open, Spec, SpecError
from bench.search import capacity
from bench.search.bracket import rounded
from bench.search.capacity import WARMUP_SHARE, Capacity, Search
from bench.tune.decide import (
    MOST_PAIRED,
    ROUNDS,
    Pairing,
    Round,
    Trial,
    Verdict,
    Visit,
    conclude,
    kept,
    ranked,
    ratio,
    stands_out,
    survivors,
)
from bench.tune.propose import Proposer
from bench.tune.space import Changes, Space, key, words

# Of the edge. In a simulated queue, pairings at 1.1 or 1.25 times the edge seldom told even twice the capacity apart,
# since visits of the incumbent differed as much; at 1.5 half more was told apart, and at 2 smaller gains drown as well.
STRESS = 1.5
RUNG_SEEDS, PAIR_SEEDS = 100, 200  # from the search's own seed on; below are those of the edge

Put = Callable[[Changes, Spec, Callable[[Progress], None]], Awaitable[Result]]
"""Puts load on a server with these changes. Raises ArmError where it doesn't come up, SpecError where it can't serve.

What the callback raises ends the run. The Spec's address is filled in.
"""


@dataclass(frozen=True, slots=True)
class Rung:
    """Runs of `requests`; none begins once `until` of the budget, or of what an incumbent has of it, is used up."""

    requests: int
    until: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`edge` finds the rate, and its Spec says what is asked. A side of a pairing has two visits of `visit_requests`.

    Whatever the numbers, arrivals last `least_s`: a queue takes time to grow. Half of the candidates change one knob.
    """

    edge: Search
    budget_s: float
    seed: int = 0
    candidates: int = 16
    rungs: Sequence[Rung] = (Rung(40, 0.3), Rung(80, 0.45))
    visit_requests: int = 100
    least_s: float = 20.0

    def at(self, rate: float, requests: int, seed: int) -> Spec:
        requests = max(requests, ceil(rate * self.least_s))
        warmup, load = ceil(WARMUP_SHARE * requests), Open("poisson", rate)
        return replace(self.edge.spec, load=load, requests=requests, warmup=warmup, seed=self.seed + seed)


@dataclass(frozen=True, slots=True)
class Edge:
    """The highest rate, in requests/s, at which these settings met the objectives; `met` is False where none was."""

    changes: Changes
    rate: float
    met: bool
    at_s: float


@dataclass
class Record:
    """What is known so far, in the order in which it was found. `ended` says why there is no more."""

    plan: Plan
    edges: list[Edge] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    pairings: list[Pairing] = field(default_factory=list)
    ended: str = "interrupted"
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        return conclude(self.pairings)

    @property
    def winner(self) -> Pairing | None:
        return kept(self.pairings)


class OutOfTime(Exception):
    """The budget doesn't allow for what would come next."""


class Tuner:
    """`record` holds what is known; `keep` is called whenever it has grown, with a line for people."""

    def __init__(
        self, plan: Plan, space: Space, put: Put, keep: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.record = Record(plan)
        self._plan = plan
        self._space = space
        self._put = put
        self._keep = keep
        self._now = now
        self._started = now()

        # Of the incumbent
        self._incumbent: Changes = {}
        self._since = 0.0  # when its trials began, of the budget
        self._tried: list[Trial] = []  # over it
        self._rate = 0.0
        self._round_s = 0.0  # how long the longest took

    async def run(self) -> Record:
        """Raises what `Put` raises for the settings as they are; for others that is a finding."""
        try:
            await self._find_edge()
            while not await self._halve():
                pass
            if not self._tried:
                raise OutOfTime
            await self._pair(ranked(self._tried))
            self.record.ended = "all finalists were paired"
        except OutOfTime:
            self.record.ended = "the budget was used up"
        self.record.seconds = self._elapsed_s
        return self.record

    @property
    def _elapsed_s(self) -> float:
        return self._now() - self._started

    @property
    def _left_s(self) -> float:
        return self._plan.budget_s - self._elapsed_s

    async def _find_edge(self) -> None:
        latest: Capacity | None = None

        def keep(found: Capacity) -> None:
            nonlocal latest
            latest = found
            if self._left_s <= 0:
                raise OutOfTime

        incumbent = self._incumbent
        try:
            await capacity.find(self._plan.edge, lambda spec, watch: self._put(incumbent, spec, watch), keep)
        finally:
            if latest is not None:
                self._note_edge(latest)

    def _note_edge(self, found: Capacity) -> None:
        low = found.bracket.low
        edge = Edge(self._incumbent, found.plan.low if low is None else low, low is not None, self._elapsed_s)
        self._rate = rounded(max(STRESS * edge.rate, found.scale.summary.requests_per_s, self._rate))
        self.record.edges.append(edge)
        self._tell(f"edge of {words(edge.changes)}: {edge.rate:g} requests/s, trials at {self._rate:g}")

    async def _halve(self) -> bool:
        """False where a candidate stood out and won: all begins anew from there."""
        self._since, self._tried = self._elapsed_s, []
        if not await self._first_rung(self._plan.rungs[0]):
            return False
        trials = self._tried
        for number, rung in enumerate(self._plan.rungs[1:], start=1):
            going_on, trials = survivors(trials), []
            for changes in going_on:
                if self._before(rung):
                    trials.append(await self._trial(changes, number, rung))
            self._tried = [*self._tried, *trials]
        return True

    async def _first_rung(self, rung: Rung) -> bool:
        if not self._before(rung):
            return True
        base = await self._trial(self._incumbent, 0, rung)
        proposer = Proposer(self._space, self._plan.seed, self._plan.candidates // 2, self._incumbent)
        while len(self._tried) < self._plan.candidates and self._before(rung):
            if (changes := proposer.ask()) is None:
                break
            trial = await self._trial(changes, 0, rung)
            self._tried.append(trial)
            proposer.tell(changes, trial.score)
            if stands_out(base, trial) and await self._wins(changes):
                return False
        return True

    def _before(self, rung: Rung) -> bool:
        return self._elapsed_s - self._since < rung.until * (self._plan.budget_s - self._since)

    async def _trial(self, changes: Changes, number: int, rung: Rung) -> Trial:
        """All of a rung get the same requests at the same times."""
        visit, error = None, None
        try:
            visit = await self._visit(changes, rung.requests, RUNG_SEEDS + number)
        except (ArmError, SpecError, Lost) as caught:
            error = str(caught)
        trial = Trial(changes, number, self._elapsed_s, visit, error)
        self.record.trials.append(trial)
        result = f"{trial.score:.0%} good" if error is None else "did not serve"
        self._tell(f"trial {len(self.record.trials)}, {words(changes)}: {result}")
        return trial

    async def _pair(self, finalists: Sequence[Changes]) -> None:
        for changes in finalists:
            await self._wins({**self._incumbent, **changes})

    async def _wins(self, changes: Changes) -> bool:
        """Pairs it with the incumbent, unless that has been done or there have been as many as may be."""
        pairings = self.record.pairings
        if len(pairings) >= MOST_PAIRED or key(changes) in self._seen():
            return False
        try:
            await self._pair_one(changes, PAIR_SEEDS + 2 * ROUNDS * len(pairings))
        except (ArmError, SpecError, Lost) as caught:
            self.record.trials.append(Trial(changes, len(self._plan.rungs), self._elapsed_s, None, str(caught)))
        return key(changes) == key(self._incumbent)

    def _seen(self) -> set[bytes]:
        """Settings that are the incumbent, or lost to it."""
        lost = (each.changes for each in self.record.pairings if key(each.incumbent) == key(self._incumbent))
        return {key(self._incumbent), *map(key, lost)}

    async def _pair_one(self, changes: Changes, seed: int) -> None:
        """One round, and another where that is won; what is known is recorded after each."""
        first = await self._round(changes, seed)
        pairing = Pairing(self._incumbent, changes, self._rate, self._elapsed_s, [first])
        self.record.pairings.append(pairing)
        self._tell_round(pairing)
        if pairing.open:
            pairing = replace(pairing, rounds=[first, await self._round(changes, seed + 2)])
            self.record.pairings[-1] = pairing
            self._tell_round(pairing)
        if pairing.won:
            self._incumbent, self._round_s = changes, 0.0
            await self._find_edge()

    async def _round(self, changes: Changes, seed: int) -> Round:
        """A B B A. The way there has the same requests for both, the way back others: see `bench.regression.pairs`."""
        self._check_time_for_a_round()
        began, requests = self._elapsed_s, self._plan.visit_requests
        order = (self._incumbent, changes, changes, self._incumbent)
        visits = [await self._visit(side, requests, seed + place // 2) for place, side in enumerate(order)]
        self._round_s = max(self._round_s, self._elapsed_s - began)
        base, other = [visits[0], visits[3]], visits[1:3]
        return Round(base, other, ratio(base, other, self._plan.seed))

    def _check_time_for_a_round(self) -> None:
        """A round that is cut short is no evidence, and its time is lost."""
        spec = self._plan.at(self._rate, self._plan.visit_requests, 0)
        if max(4 * (spec.warmup + spec.requests) / self._rate, self._round_s) > self._left_s:
            raise OutOfTime

    def _tell_round(self, pairing: Pairing) -> None:
        found, number = pairing.ratio, len(self.record.pairings)
        outcome = "wins" if pairing.won else "wins once, and is visited again" if pairing.open else "does not win"
        interval = f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}], A/A {found.aa_width:.1%}"
        self._tell(f"pairing {number}, {words(pairing.changes)}: goodput x {interval}: {outcome}")

    async def _visit(self, changes: Changes, requests: int, seed: int) -> Visit:
        if self._left_s <= 0:
            raise OutOfTime
        result = await self._put(changes, self._plan.at(self._rate, requests, seed), lambda progress: None)
        return Visit.of(result, self._plan.edge.wanted)

    def _tell(self, line: str) -> None:
        self.record.seconds = self._elapsed_s
        self._keep(f"{self._elapsed_s:.0f} of {self._plan.budget_s:.0f} s, {line}")
