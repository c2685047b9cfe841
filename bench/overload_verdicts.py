"""Whether a run's figures meet the bars that were set for them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bench.overload_arms import OURS, STOCK, STOCK_QUEUE
from bench.overload_refusals import BURST
from bench.overload_results import Results

OVERLOADS = (2.0, 3.0)
OF_THE_BEST_POINT = 0.85
TIMES_STOCK = 2.0
LONGEST_TO_SHORTEST = 1.5
REFUSAL_CPU_US = 200.0
REFUSAL_P99_MS = 50.0
BURST_P99_MS = 150.0
TIMES_ALONE = 2.0


@dataclass(frozen=True)
class Verdict:
    """`met` is None where the run didn't measure it."""

    claim: str
    found: str
    met: bool | None

    def __str__(self) -> str:
        return f"{WORDS[self.met]}  {self.claim}: {self.found}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


WORDS = {True: "met   ", False: "MISSED", None: "-     "}
NOT_MEASURED = "not measured"


def verdicts(results: Results) -> list[Verdict]:
    return [*_goodput(results), *_shares(results), *_refusals(results), *_fairness(results)]


def _goodput(results: Results) -> Iterator[Verdict]:
    bests = [(best, arm) for arm in results.arms if (best := results.best(arm)) is not None]
    best, best_arm = max(bests, default=(None, ""))
    for factor in OVERLOADS:
        ours = results.goodput(OURS, factor)
        claim = f"goodput at {factor:g}x, as a share of the best point of any arm ({best_arm}), >= {OF_THE_BEST_POINT}"
        yield _ratio(claim, ours, best, OF_THE_BEST_POINT)
    stock = results.goodput(STOCK, 2.0)
    yield _ratio(f"goodput at 2x, over stock's, >= {TIMES_STOCK:g}", results.goodput(OURS, 2.0), stock, TIMES_STOCK)
    for factor in OVERLOADS:
        ours, queue = results.goodput(OURS, factor), results.goodput(STOCK_QUEUE, factor)
        yield _above(f"goodput at {factor:g}x above stock-queue's", ours, queue)


def _ratio(claim: str, ours: float | None, other: float | None, bar: float) -> Verdict:
    if ours is None or other is None:
        return Verdict(claim, NOT_MEASURED, None)
    if not other:
        return Verdict(claim, f"{ours:.3g}/s against none", ours > 0)
    return Verdict(claim, f"{ours / other:.3g} ({ours:.3g}/s to {other:.3g}/s)", ours >= bar * other)


def _above(claim: str, ours: float | None, other: float | None) -> Verdict:
    if ours is None or other is None:
        return Verdict(claim, NOT_MEASURED, None)
    return Verdict(claim, f"{ours:.3g}/s to {other:.3g}/s", ours > other)


def _shares(results: Results) -> Iterator[Verdict]:
    for factor in OVERLOADS:
        claim = f"refused at {factor:g}x, longest quarter over shortest, <= {LONGEST_TO_SHORTEST:g}"
        shares = results.refused_shares(OURS, factor)
        if not any(shares):
            yield Verdict(claim, "nobody refused" if shares else NOT_MEASURED, None)
            continue
        shortest, longest = shares[0], shares[-1]
        found = f"{longest:.0%} to {shortest:.0%}" + (f" = {longest / shortest:.2f}" if shortest else "")
        yield Verdict(claim, found, longest <= LONGEST_TO_SHORTEST * shortest)


def _refusals(results: Results) -> Iterator[Verdict]:
    if not results.refusals:
        yield Verdict(f"CPU of a refusal <= {REFUSAL_CPU_US:g} us", NOT_MEASURED, None)
        yield Verdict(f"p99 latency of a refusal <= {REFUSAL_P99_MS:g} ms", NOT_MEASURED, None)
    for each in results.refusals:
        cpu, p99 = each.cpu_us, each.latency_ms(99)
        bar = BURST_P99_MS if each.kind == BURST else REFUSAL_P99_MS
        count = f"{len(each.latencies_ns)} of {each.sent} refused"
        yield _below(f"CPU of a refusal ({each.kind}) <= {REFUSAL_CPU_US:g} us", cpu, REFUSAL_CPU_US, "us", count)
        yield _below(f"p99 latency of a refusal ({each.kind}) <= {bar:g} ms", p99, bar, "ms", count)


def _fairness(results: Results) -> Iterator[Verdict]:
    fair = results.fairness
    if fair is None:
        return
    count = f"{len(fair.admit_ms)} samples"
    yield _below(
        f"admit p95 beside a flood <= the mean gap between releases ({_ms(fair.release_gap_ms)})",
        fair.admit_p95_ms,
        fair.release_gap_ms,
        "ms",
        count,
    )
    alone, beside = fair.alone_ttft_p95_ms, fair.beside_ttft_p95_ms
    bar = None if alone is None else TIMES_ALONE * alone
    yield _below(f"TTFT p95 beside a flood <= {TIMES_ALONE:g} x alone ({_ms(alone)})", beside, bar, "ms", count)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g} ms"


def _below(claim: str, found: float | None, bar: float | None, unit: str, count: str) -> Verdict:
    if found is None or bar is None:
        return Verdict(claim, f"{NOT_MEASURED} ({count})", None)
    return Verdict(claim, f"{found:.4g} {unit} ({count})", found <= bar)
