"""The case's plots, as HTML fragments; the first carries the script that draws them all."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import plotly.graph_objects as go

from bench import batching_chapter as chapter
from bench.batching_experiments import RATES, Case, Point
from bench.batching_search import DELAYS_MS, PREFERRED
from bench.batching_sim import Policy


def figures(case: Case) -> Iterator[str]:
    plots = (latency_over_rate(case), where_time_goes(case), *rates_found(case), burst_lengths(case), devices(case))
    for index, plot in enumerate(plots):
        plot.update_layout(
            template="plotly_white", height=400, margin={"t": 60, "b": 50}, legend={"font": {"size": 11}}
        )
        yield plot.to_html(full_html=False, include_plotlyjs=index == 0, config={"displayModeBar": False})


def latency_over_rate(case: Case) -> go.Figure:
    plot = go.Figure()
    for name, points in groupby(case.sweep, key=lambda point: point.arm.name):
        plot.add_scatter(name=name, mode="lines+markers", **_curve(list(points)))
    _level(plot, f"bound {case.bound_ms:g} ms", case.bound_ms, RATES)
    plot.update_layout(title="P99 over load: the same trace, more of its requests")
    plot.update_xaxes(title="requests/s asked for")
    plot.update_yaxes(title="P99, ms", type="log", dtick=1)
    return plot


def _level(plot: go.Figure, name: str, level: float, x: Sequence[float] | Sequence[str]) -> None:
    """A dotted line. Plotly's own puts its label on a log axis at ten to the power of its value."""
    plot.add_scatter(name=name, x=x, y=[level] * len(x), mode="lines", line={"dash": "dot", "color": "#666"})


def _curve(points: list[Point]) -> dict[str, list[float] | list[str]]:
    return {
        "x": [point.rate for point in points],
        "y": [point.figures.latency_ms.percentiles["p99"] for point in points],
        "text": [f"{point.figures.busy:.0%} busy, batch {point.figures.batch:.1f}" for point in points],
    }


def where_time_goes(case: Case) -> go.Figure:
    names = [point.arm.name for point in case.at_peak]
    found = [point.figures for point in case.at_peak]
    plot = go.Figure()
    plot.add_bar(name="open, others may join", x=names, y=[each.forming_ms for each in found])
    plot.add_bar(name="sealed, in line", x=names, y=[each.waiting_ms.mean - each.forming_ms for each in found])
    plot.add_bar(
        name="executing",
        x=names,
        y=[each.latency_ms.mean - each.waiting_ms.mean for each in found],
        text=[f"{each.busy:.0%} busy" for each in found],
        textposition="outside",
    )
    plot.update_layout(title=f"Where a request's time goes at {chapter.RATE:g}/s (means)", barmode="stack")
    plot.update_yaxes(title="ms")
    return plot


def rates_found(case: Case) -> Iterator[go.Figure]:
    top = max(found.rate for found in case.found)
    for policy in Policy:
        rates = {
            (found.batching.preferred_batch_size, found.batching.max_queue_delay_ms): found.rate
            for found in case.found
            if found.batching.policy is policy
        }
        plot = go.Figure()
        plot.add_heatmap(
            x=[f"{delay:g} ms" for delay in DELAYS_MS],
            y=[str(list(sizes) or "none") for sizes in PREFERRED],
            z=[[rates[sizes, delay] for delay in DELAYS_MS] for sizes in PREFERRED],
            texttemplate="%{z}",
            zmin=0,
            zmax=top,
            colorscale="Blues",
        )
        plot.update_layout(title=f"{policy}: requests/s with P99 within {case.bound_ms:g} ms")
        plot.update_xaxes(title="max_queue_delay")
        plot.update_yaxes(title="preferred_batch_size")
        yield plot


def burst_lengths(case: Case) -> go.Figure:
    lengths = [length * 1e3 for length, _ in case.burst_lengths]
    plot = go.Figure()
    for name, level, values in (
        ("P99", chapter.P99_MS, [found.latency_ms.percentiles["p99"] for _, found in case.burst_lengths]),
        ("mean wait", chapter.WAITING_MS, [found.waiting_ms.mean for _, found in case.burst_lengths]),
    ):
        plot.add_scatter(name=name, x=lengths, y=values, mode="lines+markers")
        _level(plot, f"the chapter's {name}, {level:g} ms", level, lengths)
    plot.update_layout(title=f"{chapter.TIMID.name} at {chapter.RATE:g}/s: how long must a burst be?")
    plot.update_xaxes(title="mean length of a burst, ms", type="log", tickvals=lengths)
    plot.update_yaxes(title="ms", type="log", dtick=1)
    return plot


def devices(case: Case) -> go.Figure:
    loads = [f"{row.traffic} {row.rate}/s" for row in case.devices]
    plot = go.Figure()
    for name, values in (
        (chapter.TIMID.name, [row.timid for row in case.devices]),
        (case.best.batching.name, [row.best for row in case.devices]),
    ):
        for index, count in enumerate(("one device", "two devices")):
            plot.add_bar(name=f"{name}, {count}", x=loads, y=[pair[index] for pair in values])
    _level(plot, f"bound {case.bound_ms:g} ms", case.bound_ms, loads)
    plot.update_layout(title="A second device or another setting", barmode="group")
    plot.update_yaxes(title="P99, ms", type="log", dtick=1)
    return plot
