"""What two servers are compared by, as functions of an arm and of how often each of its requests was drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Protocol

import numpy as np

from bench.regression.bootstrap import Counts, Places, Values, percentile
from bench.regression.pairs import Visit
from bench.run.objectives import VALUES_NS
from bench.run.spec import SpecError
from bench.sample import RequestSample

FEW_REQUESTS = 10
BEYOND = 5  # so many values must lie above a quantile (and below it) for it to mean anything


@dataclass(frozen=True)
class Arm:
    """One server's visits, their requests one after the other. Arrays are per request.

    Raises SpecError for a visit that measured no request.
    """

    visits: Sequence[Visit]

    def __post_init__(self) -> None:
        if not all(self.sizes):
            raise SpecError(f"nothing was measured in a visit of {self.visits[0].arm}")

    @cached_property
    def samples(self) -> list[RequestSample]:
        return [sample for visit in self.visits for sample in visit.result.samples]

    @property
    def sizes(self) -> list[int]:
        return [len(visit.result.samples) for visit in self.visits]

    @cached_property
    def pairs(self) -> list[tuple["Arm", "Arm"]]:
        """The first and the last visit of each round that has several."""
        rounds = [list(visits) for _, visits in groupby(self.visits, key=lambda visit: visit.round)]
        return [(Arm(visits[:1]), Arm(visits[-1:])) for visits in rounds if len(visits) > 1]

    @cached_property
    def latencies_ms(self) -> dict[str, tuple[Values, Places]]:
        """By name, of completed requests: the values, ascending, and the places of the requests they belong to."""
        return {name: _ordered_ms(self.samples, of) for name, of in VALUES_NS.items()}

    @cached_property
    def completed(self) -> Values:
        return np.array([float(sample.ok) for sample in self.samples])

    @cached_property
    def output_tokens(self) -> Values:
        """Of completed requests."""
        return np.array([float(sample.output_tokens or 0) if sample.ok else 0.0 for sample in self.samples])

    @cached_property
    def wall_s(self) -> Values:
        """What each request adds to its visit's wall time."""
        return np.concatenate([_wall_s(visit) for visit in self.visits])

    @cached_property
    def cpu_us(self) -> Values:
        """The visit's CPU time, spread evenly; NaN where the process is not known."""
        return _spread([np.nan if visit.cpu_ns is None else visit.cpu_ns / 1e3 for visit in self.visits], self.sizes)

    @cached_property
    def paid_tokens(self) -> Values:
        """The visit's output tokens, spread evenly, with as many per request of the warm-up, which CPU time includes.

        Evenly: which request cost how much CPU is not known, so that only visits are drawn, not requests.
        """
        return _spread([_tokens_with_warmup(visit) for visit in self.visits], self.sizes)


def _ordered_ms(
    samples: Sequence[RequestSample], of: Callable[[RequestSample], Sequence[float]]
) -> tuple[Values, Places]:
    found = [(value / 1e6, place) for place, sample in enumerate(samples) if sample.ok for value in of(sample)]
    values = np.array([value for value, _ in found])
    places = np.array([place for _, place in found], np.int64)
    order = values.argsort(kind="stable")
    return values[order], places[order]


def _spread(totals: Sequence[float], sizes: Sequence[int]) -> Values:
    return np.repeat(np.array(totals) / np.array(sizes), sizes)


def _tokens_with_warmup(visit: Visit) -> float:
    requests = len(visit.result.samples)
    return visit.result.summary.output_tokens * (requests + int(visit.result.spec.get("warmup", 0))) / requests


def _wall_s(visit: Visit) -> Values:
    """In a closed loop time passes as requests take it (Little's law), so that each brings its part of the wall time.

    In an open loop they come when they are due, whatever they take, and all bring the same.
    """
    samples = visit.result.samples
    if visit.result.spec["load"]["kind"] == "closed":
        weight = np.array([float(_held_ns(sample)) for sample in samples])
    else:
        weight = np.ones(len(samples))
    brought: Values = weight / weight.sum() * visit.result.wall_ns / 1e9
    return brought


def _held_ns(sample: RequestSample) -> int:
    """How long the request was under way, as far as is known; at least 1."""
    last_event = sample.events[-1].stamp_ns if sample.events else None
    stamps = [stamp for stamp in (sample.done_ns, last_event, sample.headers_ns) if stamp is not None]
    return max(max(stamps, default=0) - sample.sent_ns, 1)


class Measure(Protocol):
    """A figure of a server. `as_difference`: compared by B - A and not by B / A, since it may be zero."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def lower_is_better(self) -> bool: ...
    @property
    def as_difference(self) -> bool: ...

    def known(self, arm: Arm) -> bool:
        """Whether the arm has what it is made of."""

    def shortage(self, arm: Arm) -> str:
        """Why the arm's samples are too few for it; empty when they are enough."""

    def figures(self, arm: Arm, counts: Counts) -> Values:
        """In each resample; NaN where it is undefined."""


@dataclass(frozen=True)
class Quantile:
    """A percentile, in ms, of a latency over the completed requests of an arm."""

    latency: str
    q: float
    unit: str = "ms"
    lower_is_better: bool = True
    as_difference: bool = False

    @property
    def name(self) -> str:
        return f"{self.latency}_p{self.q:g}"

    def known(self, arm: Arm) -> bool:
        return bool(len(arm.latencies_ms[self.latency][0]))

    def shortage(self, arm: Arm) -> str:
        values, places = arm.latencies_ms[self.latency]
        thin = min(self.q, 100 - self.q) / 100
        if len(values) < (needed := round(BEYOND / thin)):
            return f"{len(values)} samples, {needed} needed"
        return _too_few_requests(len(np.unique(places)))

    def figures(self, arm: Arm, counts: Counts) -> Values:
        return percentile(*arm.latencies_ms[self.latency], counts, self.q)


@dataclass(frozen=True)
class Rate:
    """A sum over the arm's requests by another."""

    name: str
    unit: str
    over: Callable[[Arm], Values]
    under: Callable[[Arm], Values]
    lower_is_better: bool
    as_difference: bool = False
    visits_needed: int = 1

    def known(self, arm: Arm) -> bool:
        return bool(np.isfinite(self.over(arm)).all())

    def shortage(self, arm: Arm) -> str:
        if len(arm.visits) < self.visits_needed:
            return f"{len(arm.visits)} visit, {self.visits_needed} needed"
        return _too_few_requests(len(arm.samples))

    def figures(self, arm: Arm, counts: Counts) -> Values:
        over, under = counts @ self.over(arm), counts @ self.under(arm)
        found: Values = np.divide(over, under, out=np.full(len(counts), np.nan), where=under > 0)
        return found


def _too_few_requests(requests: int) -> str:
    return f"{requests} requests, {FEW_REQUESTS} needed" if requests < FEW_REQUESTS else ""


def _failed_percent(arm: Arm) -> Values:
    return 100.0 * (1.0 - arm.completed)


def _one_each(arm: Arm) -> Values:
    return np.ones(len(arm.samples))


MEASURES: tuple[Measure, ...] = (
    Quantile("ttft", 50),
    Quantile("ttft", 99),
    Quantile("tpot", 50),
    Quantile("tpot", 99),
    Quantile("gap", 99),
    Quantile("e2e", 50),
    Quantile("e2e", 99),
    Rate("output_tokens_per_s", "1/s", lambda arm: arm.output_tokens, lambda arm: arm.wall_s, lower_is_better=False),
    Rate("requests_per_s", "1/s", lambda arm: arm.completed, lambda arm: arm.wall_s, lower_is_better=False),
    Rate("error_rate", "%", _failed_percent, _one_each, lower_is_better=True, as_difference=True),
    Rate(
        "cpu_us_per_token",
        "us",
        lambda arm: arm.cpu_us,
        lambda arm: arm.paid_tokens,
        lower_is_better=True,
        visits_needed=2,
    ),
)
