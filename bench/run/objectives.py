"""What a run is held to, as in `ttft_p99<1s,tpot_p99<200ms,error_rate<0.1%`; judged on its raw samples.

An objective is a quantile of a latency (ttft, tpot, gap, e2e; p50 p90 p95 p99 p99.9 mean; ms or s), a share of all
requests (error_rate, refused_rate; %), or a rate to exceed (output_tokens_per_s, goodput; per second).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.metrics import PERCENTILES, percentile
from bench.overload_point import REFUSAL_STATUSES
from bench.run.result import Result
from bench.run.spec import SpecError
from bench.sample import RequestSample

NUMBER = r"(\d+(?:\.\d+)?)"
QUANTILES = "|".join(re.escape(name) for name in [*PERCENTILES, "mean"])
LATENCY = re.compile(rf"(ttft|tpot|gap|e2e)_({QUANTILES})<{NUMBER}(ms|s)")
SHARE = re.compile(rf"(error_rate|refused_rate)<{NUMBER}%")
RATE = re.compile(rf"(output_tokens_per_s|goodput)>{NUMBER}")
EXAMPLE = "ttft_p99<1s, tpot_mean<80ms, gap_p99.9<300ms, error_rate<0.1%, output_tokens_per_s>100 or goodput>2"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`limit` and `found` are in `unit`; `found` is None where there was nothing to measure."""

    name: str
    limit: float
    found: float | None
    met: bool
    unit: str
    relation: str = "<"

    def __str__(self) -> str:
        found = "nothing measured" if self.found is None else _with_unit(self.found, self.unit)
        return f"{self.name} {self.relation} {_with_unit(self.limit, self.unit)}: {found}"


def _with_unit(value: float, unit: str) -> str:
    """Four figures that matter, never an exponent."""
    return f"{float(f'{value:.4g}'):,.10g}{'' if unit == '%' else ' '}{unit}"


def refused(sample: RequestSample) -> bool:
    return sample.status in REFUSAL_STATUSES


def _known(value: float | None) -> list[float]:
    return [] if value is None else [value]


VALUES_NS: dict[str, Callable[[RequestSample], Sequence[float]]] = {
    "ttft": lambda sample: _known(sample.ttft_ns),
    "tpot": lambda sample: _known(sample.tpot_ns),
    "gap": lambda sample: sample.gaps_ns,
    "e2e": lambda sample: _known(sample.e2e_ns),
}
# A request of a single token has neither, and passes.
MAY_BE_MISSING = ("tpot", "gap")


class Objective(Protocol):
    def judge(self, result: Result, good: Callable[[RequestSample], bool]) -> Verdict:
        """`good` says of one request whether it met the latency objectives."""


@dataclass(frozen=True, slots=True)
class Latency:
    """A quantile of completed requests' `measure`, below `limit_ms`."""

    measure: str
    quantile: str
    limit_ms: float

    def judge(self, result: Result, good: Callable[[RequestSample], bool]) -> Verdict:
        done = [sample for sample in result.samples if sample.ok]
        found = self._quantile_ms(value for sample in done for value in VALUES_NS[self.measure](sample))
        met = bool(done) and self._holds(found)
        return Verdict(f"{self.measure}_{self.quantile}", self.limit_ms, found, met, "ms")

    def met_by(self, sample: RequestSample) -> bool:
        """Of a request's gaps, of which it has many, the same quantile is held to the limit."""
        return self._holds(self._quantile_ms(VALUES_NS[self.measure](sample)))

    def _holds(self, found_ms: float | None) -> bool:
        return self.measure in MAY_BE_MISSING if found_ms is None else found_ms < self.limit_ms

    def _quantile_ms(self, values_ns: Iterable[float]) -> float | None:
        ordered = sorted(values_ns)
        if not ordered:
            return None
        if self.quantile == "mean":
            return sum(ordered) / len(ordered) / 1e6
        return percentile(ordered, PERCENTILES[self.quantile]) / 1e6


@dataclass(frozen=True, slots=True)
class Share:
    """`refused_rate` counts refusals (429, 503), `error_rate` whatever was not completed; of all requests."""

    name: str
    limit_percent: float

    def judge(self, result: Result, good: Callable[[RequestSample], bool]) -> Verdict:
        samples = result.samples
        count = sum(refused(sample) if self.name == "refused_rate" else not sample.ok for sample in samples)
        found = 100 * count / len(samples) if samples else None
        met = found is not None and found < self.limit_percent
        return Verdict(self.name, self.limit_percent, found, met, "%")


@dataclass(frozen=True, slots=True)
class Rate:
    """Per second of wall time: `output_tokens_per_s` of completed requests, `goodput` in good requests."""

    name: str
    floor: float

    def judge(self, result: Result, good: Callable[[RequestSample], bool]) -> Verdict:
        if self.name == "goodput":
            found, unit = goodput(result, good), "requests/s"
        else:
            found, unit = result.summary.output_tokens_per_s, "tokens/s"
        return Verdict(self.name, self.floor, found, found > self.floor, unit, ">")


def goodput(result: Result, good: Callable[[RequestSample], bool]) -> float:
    """Good requests per second of the run's wall time."""
    return sum(map(good, result.samples)) * 1e9 / result.wall_ns if result.wall_ns else 0.0


@dataclass(frozen=True, slots=True)
class Objectives:
    """`text` is what was asked for, `each` its parts in their order."""

    text: str
    each: Sequence[Objective]

    def judge(self, result: Result) -> list[Verdict]:
        return [objective.judge(result, self.met_by) for objective in self.each]

    def met_by(self, sample: RequestSample) -> bool:
        """Completed, and within every latency objective; a single token has neither TPOT nor gaps, and passes those."""
        return sample.ok and all(latency.met_by(sample) for latency in self._of_one_request().values())

    def _of_one_request(self) -> dict[str, Latency]:
        """By measure, the loosest limit: half of all requests may well exceed a bound on the median."""
        latencies = [objective for objective in self.each if isinstance(objective, Latency)]
        return {latency.measure: latency for latency in sorted(latencies, key=lambda latency: latency.limit_ms)}


def parse(text: str) -> Objectives:
    """Raises SpecError naming the part that can't be read."""
    return Objectives(text, [_objective("".join(part.split())) for part in text.split(",")])


def _objective(part: str) -> Objective:
    if found := LATENCY.fullmatch(part):
        measure, quantile, limit, unit = found.groups()
        return Latency(measure, quantile, _positive(limit, part) * (1000 if unit == "s" else 1))
    if found := SHARE.fullmatch(part):
        return Share(found[1], _positive(found[2], part))
    if found := RATE.fullmatch(part):
        return Rate(found[1], float(found[2]))
    raise SpecError(f"not an objective: {part!r}; they read {EXAMPLE}")


def _positive(number: str, part: str) -> float:
    value = float(number)
    if not value:
        raise SpecError(f"nothing is below zero: {part!r}")
    return value
