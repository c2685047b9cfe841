"""The case as text: what the chapter's figures imply, what the trace shows, and the setting to take."""

from collections.abc import Iterator, Sequence

from bench import batching_chapter as chapter
from bench.batching_experiments import HIGH_BUSY, Case, Point, Spread
from bench.batching_figures import Arm, Figures
from bench.batching_search import DELAYS_MS, PREFERRED
from bench.batching_sim import Policy

Row = Sequence[str]
PUSHED_COLUMNS = ("busy", "batch", "depth", "p50 / p95 / p99 ms", "n")


def tables(case: Case) -> Iterator[tuple[str, list[Row]]]:
    """Title, then a header and its rows."""
    yield f"At peak: {chapter.RATE:g} requests/s, all within {chapter.DUTY:.0%} of the time", _peak(case.at_peak)
    yield "The same trace with fewer and with more of its requests: P50 / P95 / P99, ms", _sweep(case.sweep)
    yield f"The search: requests/s with P99 within {case.bound_ms:g} ms, one device", _search(case)
    yield "The same on other traces: requests/s, by seed", _spread(case.spread, case.spread[0])
    yield f"Throughput under the bound, and pushed on to {HIGH_BUSY:.0%} busy", _pushed(case)
    yield f"A second device: P99 ms on one device / on two; what brings it within {case.bound_ms:g} ms", _devices(case)
    yield f"{chapter.TIMID.name} at {chapter.RATE:g}/s when bursts are shorter or longer", _lengths(case)


def conclusion(case: Case) -> list[str]:
    by_batching = {found.batching: found.rate for found in case.found}
    timid, bolder = by_batching[chapter.TIMID], by_batching[chapter.BOLDER]
    best, sealed = case.best, case.best_sealed
    return [
        f"Better setting: {best.batching.name}, {best.rate} requests/s with P99 within {case.bound_ms:g} ms on one "
        f"device{_times(best.rate, timid)} of {chapter.TIMID.name}.",
        f"If batches must be sealed early: {sealed.batching.name}, {sealed.rate}/s{_times(sealed.rate, timid)}.",
        f"The chapter's change to {chapter.BOLDER.name}: {bolder}/s{_times(bolder, timid)} (the chapter: "
        f"{chapter.BOLDER_GAIN:g} x). A batch sealed early goes at its first preferred size, so "
        f"{chapter.BOLDER.preferred_batch_size[-1]} is never reached.",
        *_overtaken(case.sweep),
        *_at_peak({point.arm: point.figures for point in case.at_peak}),
    ]


def _overtaken(points: Sequence[Point]) -> list[str]:
    """Where stopping at a small preferred size is worse than a short delay without one."""
    by_arm = {(point.arm, point.rate): point.figures for point in points}
    pairs = [
        (rate, figures, by_arm[Arm(chapter.TIMID), rate])
        for (arm, rate), figures in by_arm.items()
        if arm == Arm(chapter.BOLDER)
    ]
    worse = [
        f"{rate:g}/s (batches of {bolder.batch:.1f} against {timid.batch:.1f})"
        for rate, bolder, timid in pairs
        if _p99(bolder) > _p99(timid)
    ]
    return [f"That change is worse than none at {', '.join(worse)}."] if worse else []


def _at_peak(found: dict[Arm, Figures]) -> list[str]:
    timid, bolder = found[Arm(chapter.TIMID)], found[Arm(chapter.BOLDER)]
    least = min((arm for arm in found if arm.devices == 1), key=lambda arm: _p99(found[arm]))
    return [
        f"At peak {chapter.TIMID.name} is {timid.busy:.0%} busy by the clock, {timid.busy_at_arrival:.0%} as an "
        f"arriving request finds it, and does {timid.of_capacity:.0%} of what full batches would.",
        f"At peak the chapter's change takes P99 from {_p99(timid):.0f} to {_p99(bolder):.0f} ms (the chapter: to "
        f"{chapter.BOLDER_P99_MS:g} ms); the least on one device is {_p99(found[least]):.0f} ms, by {least.name}.",
    ]


def text(case: Case) -> str:
    blocks = [_bullets(chapter.traffic()), _bullets(chapter.implications())]
    blocks += [f"{title}\n{columns(rows)}" for title, rows in tables(case)]
    return "\n\n".join([*blocks, _bullets(conclusion(case))])


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def columns(rows: Sequence[Row]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _p99(figures: Figures) -> float:
    return figures.latency_ms.percentiles["p99"]


def _latency(figures: Figures) -> str:
    return " / ".join(f"{figures.latency_ms.percentiles[name]:.0f}" for name in ("p50", "p95", "p99"))


def _peak(points: Sequence[Point]) -> list[Row]:
    return [
        [
            *("setting", "req/s", "n", "p50 ms", "p95", "p99", "wait ms", "step ms", "batch"),
            *("occupancy", "busy", "busy at arrival", "of capacity", "depth", "deepest"),
        ],
        *([point.arm.name, *_figures(point.figures)] for point in points),
    ]


def _figures(found: Figures) -> list[str]:
    latency = found.latency_ms
    return [
        f"{found.rate:.0f}",
        str(latency.count),
        *(f"{latency.percentiles[name]:.1f}" for name in ("p50", "p95", "p99")),
        f"{found.waiting_ms.mean:.1f}",
        f"{found.execution_ms:.1f}",
        f"{found.batch:.1f}",
        *(f"{share:.0%}" for share in (found.occupancy, found.busy, found.busy_at_arrival, found.of_capacity)),
        f"{found.depth:.1f}",
        str(found.depth_max),
    ]


def _sweep(points: Sequence[Point]) -> list[Row]:
    by_arm: dict[str, list[str]] = {}
    counts = {point.rate: point.figures.latency_ms.count for point in points}
    for point in points:
        by_arm.setdefault(point.arm.name, []).append(_latency(point.figures))
    return [
        ["setting", *(f"{rate:g}/s, n={count}" for rate, count in counts.items())],
        *([name, *cells] for name, cells in by_arm.items()),
    ]


def _search(case: Case) -> list[Row]:
    rates = {found.batching: str(found.rate) for found in case.found}
    return [
        ["policy, preferred sizes", *(f"{delay:g} ms" for delay in DELAYS_MS)],
        *(
            [
                f"{policy} {list(preferred) or 'none'}",
                *(
                    rate
                    for batching, rate in rates.items()
                    if (batching.policy, batching.preferred_batch_size) == (policy, preferred)
                ),
            ]
            for policy in Policy
            for preferred in PREFERRED
        ),
    ]


def _spread(found: Sequence[Spread], base: Spread) -> list[Row]:
    def ratio(spread: Spread) -> str:
        ratios = [rate / other for rate, other in zip(spread.rates, base.rates, strict=True) if other]
        return f"{min(ratios):.2f} - {max(ratios):.2f}" if ratios else "-"

    return [
        ["setting", "requests/s", f"ratio to {base.batching.name}"],
        *([each.batching.name, " ".join(map(str, each.rates)), ratio(each)] for each in found),
    ]


def _pushed(case: Case) -> list[Row]:
    def cells(point: Point | None) -> list[str]:
        if point is None:
            return ["-"] * 6
        found = point.figures
        shown = [f"{found.busy:.0%}", f"{found.batch:.1f}", f"{found.depth:.1f}", _latency(found)]
        return [f"{point.rate:g}", *shown, str(found.latency_ms.count)]

    return [
        ["setting", "bound: req/s", *PUSHED_COLUMNS, "pushed: req/s", *PUSHED_COLUMNS],
        *([each.batching.name, *cells(each.within), *cells(each.high)] for each in case.pushed),
    ]


def _devices(case: Case) -> list[Row]:
    return [
        ["traffic", "requests/s", "n", chapter.TIMID.name, case.best.batching.name, "within the bound by"],
        *(
            [
                row.traffic,
                str(row.rate),
                str(row.count),
                *(f"{one:.0f} / {two:.0f}" for one, two in (row.timid, row.best)),
                row.verdict(case.bound_ms),
            ]
            for row in case.devices
        ),
    ]


def _lengths(case: Case) -> list[Row]:
    return [
        ["mean burst", "req/s", "n", "p50 / p95 / p99 ms", "mean wait ms", "batch", "step ms", "busy"],
        *(
            [
                f"{length * 1e3:g} ms",
                f"{found.rate:.0f}",
                str(found.latency_ms.count),
                _latency(found),
                f"{found.waiting_ms.mean:.0f}",
                f"{found.batch:.1f}",
                f"{found.execution_ms:.1f}",
                f"{found.busy:.0%}",
            ]
            for length, found in case.burst_lengths
        ),
        [
            "the chapter",
            f"{chapter.RATE:g}",
            "-",
            f"- / - / {chapter.P99_MS:g}",
            f"{chapter.WAITING_MS:g}",
            str(chapter.BATCH),
            f"{chapter.EXECUTION_MS:g}",
            f"{chapter.BUSY:.0%}",
        ],
    ]


def _times(rate: int, base: int) -> str:
    return f", {rate / base:.2f} x that" if base else ""
