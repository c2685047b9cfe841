"""From the visits of a comparison to its ratios: pooled per round, with their spread and an A/A control's width."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from bench.metrics import Distribution, Summary, summarize
from bench.procfs import CpuTime
from bench.sample import RequestSample

BASE_ARM = "ours"


@dataclass(frozen=True)
class Visit:
    """One start of one arm: what it was asked and what that cost."""

    round: int
    position: int
    arm: str
    ready_s: float
    wall_ns: int
    samples: list[RequestSample]
    api_cpu: CpuTime
    tree_cpu: CpuTime
    client_cpu_ns: int

    def as_dict(self) -> dict[str, object]:
        return {
            "round": self.round,
            "position": self.position,
            "arm": self.arm,
            "figures": Pool([self]).figures(),
            "summary": Pool([self]).summary.as_dict(),
            "raw": {
                "ready_s": self.ready_s,
                "wall_ns": self.wall_ns,
                "api_cpu_ns": self.api_cpu.run_ns,
                "api_run_queue_wait_ns": self.api_cpu.wait_ns,
                "tree_cpu_ns": self.tree_cpu.run_ns,
                "client_cpu_ns": self.client_cpu_ns,
                "requests": [request_row(sample) for sample in self.samples],
            },
        }


def request_row(sample: RequestSample) -> dict[str, object]:
    return {
        "sent_ns": sample.sent_ns,
        "ttft_ns": sample.ttft_ns,
        "tpot_ns": sample.tpot_ns,
        "e2e_ns": sample.e2e_ns,
        "gaps_ns": sample.gaps_ns,
        "output_tokens": sample.output_tokens,
        "error": sample.error,
        "detail": sample.detail,
    }


class Pool:
    """Visits of one arm taken together: sums over sums, percentiles over all their samples."""

    def __init__(self, visits: Sequence[Visit]) -> None:
        self.visits = visits
        self.summary: Summary = summarize(
            [sample for visit in visits for sample in visit.samples], sum(visit.wall_ns for visit in visits)
        )

    def figures(self) -> dict[str, float | None]:
        return {name: figure(self) for name, figure in FIGURES.items()}

    def per_token_us(self, cost_ns: Callable[[Visit], int]) -> float | None:
        tokens = self.summary.output_tokens
        return sum(cost_ns(visit) for visit in self.visits) / 1e3 / tokens if tokens else None


def _percentile(distribution: Callable[[Summary], Distribution | None], name: str) -> Callable[[Pool], float | None]:
    def figure(pool: Pool) -> float | None:
        found = distribution(pool.summary)
        return None if found is None else found.percentiles[name]

    return figure


FIGURES: dict[str, Callable[[Pool], float | None]] = {
    "output_tokens_per_s": lambda pool: pool.summary.output_tokens_per_s,
    "tokens_per_event": lambda pool: pool.summary.tokens_per_event,
    "ttft_p50_ms": _percentile(lambda summary: summary.ttft_ms, "p50"),
    "ttft_p99_ms": _percentile(lambda summary: summary.ttft_ms, "p99"),
    "tpot_p50_ms": _percentile(lambda summary: summary.tpot_ms, "p50"),
    "tpot_p99_ms": _percentile(lambda summary: summary.tpot_ms, "p99"),
    "event_gap_p50_ms": _percentile(lambda summary: summary.event_gap_ms, "p50"),
    "event_gap_p99_ms": _percentile(lambda summary: summary.event_gap_ms, "p99"),
    "api_cpu_us_per_token": lambda pool: pool.per_token_us(lambda visit: visit.api_cpu.run_ns),
    "api_run_queue_wait_us_per_token": lambda pool: pool.per_token_us(lambda visit: visit.api_cpu.wait_ns),
    "tree_cpu_us_per_token": lambda pool: pool.per_token_us(lambda visit: visit.tree_cpu.run_ns),
    "client_cpu_us_per_token": lambda pool: pool.per_token_us(lambda visit: visit.client_cpu_ns),
    "ready_s": lambda pool: sum(visit.ready_s for visit in pool.visits) / len(pool.visits),
    "failed_requests": lambda pool: float(pool.summary.requests - pool.summary.completed),
}


@dataclass(frozen=True)
class Ratio:
    """`base / other`, one value per round. `aa_width` is the largest |second visit / first visit - 1| of either arm:
    a difference smaller than that is none."""

    per_round: list[float]
    aa_width: float | None

    def as_dict(self) -> dict[str, object]:
        return {
            "per_round": self.per_round,
            "min": min(self.per_round),
            "median": median(self.per_round),
            "max": max(self.per_round),
            "aa_width": self.aa_width,
        }


def ratios(visits: Sequence[Visit], base: str = BASE_ARM) -> dict[str, dict[str, Ratio]]:
    """By the other arm's name, then by figure."""
    others = sorted({visit.arm for visit in visits} - {base})
    return {other: _ratios_of(visits, base, other) for other in others}


def _ratios_of(visits: Sequence[Visit], base: str, other: str) -> dict[str, Ratio]:
    found = {}
    for name, figure in FIGURES.items():
        pairs = [(_of(arms.get(base), figure), _of(arms.get(other), figure)) for arms in _rounds(visits)]
        per_round = [ours / theirs for ours, theirs in pairs if ours is not None and theirs]
        if per_round:
            found[name] = Ratio(per_round, aa_width(visits, (base, other), figure))
    return found


def aa_width(visits: Sequence[Visit], arms: Iterable[str], figure: Callable[[Pool], float | None]) -> float | None:
    widths = [
        abs(second / first - 1)
        for by_arm in _rounds(visits)
        for arm in arms
        for first, second in [_first_and_last(by_arm.get(arm, []), figure)]
        if first and second is not None
    ]
    return max(widths, default=None)


def _first_and_last(visits: Sequence[Visit], figure: Callable[[Pool], float | None]) -> tuple[float | None, ...]:
    return (figure(Pool(visits[:1])), figure(Pool(visits[-1:]))) if len(visits) > 1 else (None, None)


def _of(visits: Sequence[Visit] | None, figure: Callable[[Pool], float | None]) -> float | None:
    return figure(Pool(visits)) if visits else None


def _rounds(visits: Sequence[Visit]) -> list[dict[str, list[Visit]]]:
    ordered = sorted(visits, key=lambda visit: (visit.round, visit.position))
    return [_by_arm(group) for _, group in groupby(ordered, key=lambda visit: visit.round)]


def _by_arm(visits: Iterable[Visit]) -> dict[str, list[Visit]]:
    arms: dict[str, list[Visit]] = {}
    for visit in visits:
        arms.setdefault(visit.arm, []).append(visit)
    return arms


def table(visits: Sequence[Visit], base: str = BASE_ARM) -> str:
    """Figures of each arm over all rounds, then the ratios `base / other`: median [min - max], A/A width."""
    pools = {arm: Pool(found).figures() for arm, found in _by_arm(visits).items()}
    against = ratios(visits, base) if base in pools else {}
    header = ["figure", *pools, *(f"{base}/{other}" for other in against)]
    rows = [
        [
            name,
            *(_number(figures[name]) for figures in pools.values()),
            *(_ratio(found.get(name)) for found in against.values()),
        ]
        for name in FIGURES
    ]
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    values = ratio.per_round
    width = "" if ratio.aa_width is None else f" A/A {ratio.aa_width * 100:.1f}%"
    return f"{median(values):.3f} [{min(values):.3f} - {max(values):.3f}]{width}"
