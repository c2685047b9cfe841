"""What was found at each rate, all its runs together, and how near to their limits the runs around the edge came."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.metrics import PERCENTILES, Distribution, summarize
from bench.run.objectives import VALUES_NS, Latency, Objective
from bench.run.result import Result
from bench.search import knee, spent
from bench.search.capacity import Capacity
from bench.search.confidence import percentile_interval

AROUND = 1.25  # a rate that far from the edge, as a ratio, still tells of it
KNEE_OF = "p90"  # of TTFT: higher percentiles of short runs are too ragged for a bend to be seen in them


@dataclass(frozen=True, slots=True)
class Level:
    """Whole runs at one `rate` (requests/s), their raw samples together. Latencies by percentile, in ms.

    `runs` counts those that were cut short as well. `stages` has each one's share of all time.
    """

    rate: float
    runs: int
    met: int
    requests_per_s: float
    output_tokens_per_s: float
    goodput: float
    ttft_ms: Mapping[str, float]
    tpot_ms: Mapping[str, float]
    e2e_ms: Mapping[str, float]
    stages: Mapping[str, float]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def levels(found: Capacity) -> list[Level]:
    """By rate, those with at least one whole run."""
    rates = sorted({trial.rate for trial in found.trials})
    by_rate = {rate: [point for point in found.points if point.trial.rate == rate] for rate in rates}
    return [
        _level(found, rate, [point.trial.met for point in points], results)
        for rate, points in by_rate.items()
        if (results := [point.result for point in points if point.result is not None])
    ]


def _level(found: Capacity, rate: float, met: Sequence[bool], results: Sequence[Result]) -> Level:
    samples = [sample for result in results for sample in result.samples]
    wall_ns = sum(result.wall_ns for result in results)
    summary = summarize(samples, wall_ns)
    total = spent.together(sample for sample in samples if sample.ok)
    good = sum(map(found.search.wanted.met_by, samples))
    return Level(
        rate=rate,
        runs=len(met),
        met=sum(met),
        requests_per_s=summary.requests_per_s,
        output_tokens_per_s=summary.output_tokens_per_s,
        goodput=good * 1e9 / wall_ns,
        ttft_ms=_percentiles(summary.ttft_ms),
        tpot_ms=_percentiles(summary.tpot_ms),
        e2e_ms=_percentiles(summary.e2e_ms),
        stages={stage: spent.share(total, [stage]) for stage in total},
    )


def _percentiles(found: Distribution | None) -> Mapping[str, float]:
    return {} if found is None else found.percentiles


def bend(found: Sequence[Level]) -> float | None:
    """The rate of the knee of TTFT over offered rate."""
    with_ttft = [level for level in found if level.ttft_ms]
    return knee.knee([level.rate for level in with_ttft], [level.ttft_ms[KNEE_OF] for level in with_ttft])


@dataclass(frozen=True, slots=True)
class Strain:
    """How much of the tightest limit a run used: 1 is all of it. `low` and `high` bound a percentile's noise."""

    rate: float
    met: bool
    objective: str
    used: float
    low: float | None = None
    high: float | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def strains(found: Capacity) -> list[Strain]:
    """Of the whole runs around the edge, by rate; none where there is no edge."""
    if found.estimate is None:
        return []
    low, high = found.estimate.rate / AROUND, found.estimate.rate * AROUND
    return sorted(_strains(found, low, high), key=lambda strain: strain.rate)


def _strains(found: Capacity, low: float, high: float) -> Iterator[Strain]:
    for point in found.points:
        if point.result is None or not low <= point.trial.rate <= high:
            continue
        known = [
            (verdict.found / verdict.limit, verdict, objective)
            for verdict, objective in zip(point.verdicts, found.search.wanted.each, strict=True)
            if verdict.found is not None
        ]
        if known:
            used, verdict, objective = max(known, key=lambda each: each[0])
            bounds = _bounds(point.result, objective)
            yield Strain(point.trial.rate, point.trial.met, verdict.name, used, *bounds)


def _bounds(result: Result, objective: Objective) -> tuple[float, float] | tuple[None, None]:
    if not isinstance(objective, Latency) or objective.quantile not in PERCENTILES:
        return None, None
    values = [value for sample in result.samples if sample.ok for value in VALUES_NS[objective.measure](sample)]
    low, high = percentile_interval(values, PERCENTILES[objective.quantile])
    return low / 1e6 / objective.limit_ms, high / 1e6 / objective.limit_ms
