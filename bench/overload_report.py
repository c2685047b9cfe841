"""The results as text: capacity, one line per point, the verdicts."""

from collections.abc import Sequence

from bench.overload_point import Fate, Point
from bench.overload_results import Results
from bench.overload_verdicts import verdicts

HEADER = (
    *("load", "arm", "req/s", "sent", "good", "good/s", "tok/s", "late", "refused", "failed"),
    *("TTFT p50/p95/p99 ms", "TPOT p50/p95/p99 ms", "of", "refusal p50/p99 ms", "refused by length"),
    *("generator late p99 ms", "CPU client/others"),
)


def text_report(results: Results) -> str:
    parts = [_capacity(results), _table(results.points), _refusals(results), _verdicts(results)]
    if results.errors:
        parts.append("\n".join(f"error: {error}" for error in results.errors))
    return "\n\n".join(part for part in parts if part)


def _capacity(results: Results) -> str:
    capacity = results.capacity
    if capacity is None:
        return ""
    sweep = ", ".join(f"{loop.concurrency}: {loop.requests_per_s:.3g}" for loop in capacity.sweep)
    head = f"capacity ({capacity.source}): {capacity.requests_per_s:.3g} requests/s"
    return f"{head}, prefill {capacity.prefill_tokens_per_s:.4g} tokens/s" + (
        f"; by concurrency {sweep}" if sweep else ""
    )


def _table(points: Sequence[Point]) -> str:
    if not points:
        return ""
    rows = [HEADER, *(_row(point) for point in sorted(points, key=lambda point: (point.factor, point.arm)))]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(point: Point) -> tuple[str, ...]:
    figures = point.figures()
    fates = {fate: str(len(point.with_fate(fate))) for fate in Fate}
    return (
        f"{point.factor:g}x",
        point.arm,
        f"{point.rate:.3g}",
        str(len(point.answered)),
        fates[Fate.GOOD],
        f"{point.goodput:.3g}",
        f"{point.token_goodput:.4g}",
        fates[Fate.LATE],
        fates[Fate.REFUSED],
        fates[Fate.FAILED],
        _percentiles(figures["ttft_ms"], ("p50", "p95", "p99")),
        _percentiles(figures["tpot_ms"], ("p50", "p95", "p99")),
        str(sum(one.sample.ok for one in point.answered)),
        _percentiles(figures["refusal_ms"], ("p50", "p99")),
        " ".join(f"{share:.0%}" for share in point.refused_shares()),
        f"{point.lateness_p99_ns / 1e6:.1f}" + ("" if point.valid else " INVALID"),
        f"{point.cost.client_ns / point.cost.wall_ns:.0%}/{point.cost.others_ns / point.cost.wall_ns:.0%}",
    )


def _percentiles(found: object, names: Sequence[str]) -> str:
    if not isinstance(found, dict):
        return "-"
    return "/".join(f"{found['percentiles'][name]:.0f}" for name in names)


def _refusals(results: Results) -> str:
    return "\n".join(
        f"refusals, {each.kind}: {len(each.latencies_ns)} of {each.sent}, CPU {each.cpu_us or 0:.0f} us each, "
        f"latency p50 {each.latency_ms(50) or 0:.1f} ms, p99 {each.latency_ms(99) or 0:.1f} ms"
        for each in results.refusals
    )


def _verdicts(results: Results) -> str:
    width = results.aa_width()
    control = [] if width is None else [f"A/A width of goodput over the rounds: {width:.1%}"]
    return "\n".join([*(str(verdict) for verdict in verdicts(results)), *control])
