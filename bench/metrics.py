"""Figures of a set of samples. Percentiles are always taken over raw samples, never over other percentiles."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import floor

from bench.sample import RequestSample

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}


def percentile(ordered: Sequence[float], q: float) -> float:
    """The q-th percentile of an ascending sequence, by linear interpolation between its two nearest samples."""
    if not ordered:
        raise ValueError("no samples, no percentile")
    if not 0 <= q <= 100:
        raise ValueError(f"not a percentile: {q}")
    position = (len(ordered) - 1) * q / 100
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Milliseconds. `count` is the number of raw samples behind the percentiles."""

    count: int
    mean: float
    min: float
    max: float
    percentiles: dict[str, float]

    @classmethod
    def of_ns(cls, samples: Iterable[float]) -> "Distribution | None":
        ordered = sorted(sample / 1e6 for sample in samples)
        if not ordered:
            return None
        return cls(
            count=len(ordered),
            mean=sum(ordered) / len(ordered),
            min=ordered[0],
            max=ordered[-1],
            percentiles={name: percentile(ordered, q) for name, q in PERCENTILES.items()},
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run of load came to. Latencies are of completed requests only; the others are counted by reason."""

    requests: int
    completed: int
    failures: dict[str, int]
    wall_s: float
    output_tokens: int
    output_tokens_per_s: float
    requests_per_s: float
    tokens_per_event: float | None
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None
    event_gap_ms: Distribution | None
    e2e_ms: Distribution | None
    lateness_ms: Distribution | None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def summarize(samples: Sequence[RequestSample], wall_ns: int) -> Summary:
    completed = [sample for sample in samples if sample.ok]
    wall_s = wall_ns / 1e9
    tokens = sum(sample.output_tokens or 0 for sample in completed)
    return Summary(
        requests=len(samples),
        completed=len(completed),
        failures=dict(Counter(sample.error for sample in samples if sample.error is not None)),
        wall_s=wall_s,
        output_tokens=tokens,
        output_tokens_per_s=tokens / wall_s if wall_s else 0.0,
        requests_per_s=len(completed) / wall_s if wall_s else 0.0,
        tokens_per_event=_tokens_per_event(completed, tokens),
        ttft_ms=Distribution.of_ns(_known(sample.ttft_ns for sample in completed)),
        tpot_ms=Distribution.of_ns(_known(sample.tpot_ns for sample in completed)),
        event_gap_ms=Distribution.of_ns(gap for sample in completed for gap in sample.gaps_ns),
        e2e_ms=Distribution.of_ns(_known(sample.e2e_ns for sample in completed)),
        # How late the client was counts for failed requests too: it tells whether the load was what it claims to be.
        lateness_ms=Distribution.of_ns(_known(sample.lateness_ns for sample in samples)),
    )


def _known(values: Iterable[float | None]) -> Iterable[float]:
    return (value for value in values if value is not None)


def _tokens_per_event(completed: Sequence[RequestSample], tokens: int) -> float | None:
    events = sum(sample.generated_events for sample in completed)
    return tokens / events if events else None
