"""Plots of a search for capacity, all over the offered rate."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bench.metrics import PERCENTILES
from bench.run.objectives import Latency
from bench.run.report_plots import BLUE, GREEN, GREY, ORANGE, SKY, VERMILLION, look, plain
from bench.run.report_stages import PAINT
from bench.search import curve, spent
from bench.search.capacity import Capacity
from bench.search.curve import Level, Strain

OFFERED = "offered, requests/s"
SHOWN = {"p50": SKY, "p90": BLUE, "p99": VERMILLION}


def plots(found: Capacity) -> Iterator[tuple[Any, str]]:
    """Plotly figures, each with the class of its place on the page; those of nothing are left out."""
    levels = curve.levels(found)
    if not levels:
        return
    yield latency_and_throughput(found, levels), "wide"
    yield goodput(found, levels), ""
    if strains := curve.strains(found):
        yield around_the_edge(found, strains), ""
    yield percentiles(found, levels, "ttft"), ""
    yield percentiles(found, levels, "tpot"), ""
    if any(level.stages for level in levels):
        yield stages(levels), "wide"


def latency_and_throughput(found: Capacity, levels: Sequence[Level]) -> Any:
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.06)
    rates = [level.rate for level in levels]
    for name, colour in SHOWN.items():
        y = [level.ttft_ms.get(name) for level in levels]
        line = {"color": colour}
        figure.add_scatter(x=rates, y=y, name=f"TTFT {name}", mode="lines+markers", line=line, row=1, col=1)
    tokens = plain(level.output_tokens_per_s for level in levels)
    figure.add_scatter(x=rates, y=tokens, name="output tokens/s", line={"color": GREEN}, row=2, col=1)
    if (bend := curve.bend(levels)) is not None:
        text = f"knee, {bend:g}/s"
        line = {"color": ORANGE, "dash": "dash"}
        figure.add_vline(x=bend, line=line, annotation={"text": text, "yanchor": "bottom"}, row=1, col=1)
        figure.add_vline(x=bend, line=line, row=2, col=1)
    for row in (1, 2):
        _edge(figure, found, row=row, col=1)
    figure.update_yaxes(title="ms (logarithmic)", type="log", row=1)
    figure.update_yaxes(title="tokens/s", rangemode="tozero", row=2)
    figure.update_xaxes(title=OFFERED, row=2)
    return look(figure, "latency and throughput; shaded, the interval of capacity", 560)


def goodput(found: Capacity, levels: Sequence[Level]) -> Any:
    figure = go.Figure()
    rates = [level.rate for level in levels]
    figure.add_scatter(x=rates, y=rates, name="offered", mode="lines", line={"color": GREY, "dash": "dot"})
    done, good = (plain(getattr(level, name) for level in levels) for name in ("requests_per_s", "goodput"))
    figure.add_scatter(x=rates, y=done, name="completed", mode="lines+markers", line={"color": SKY})
    figure.add_scatter(x=rates, y=good, name="met every objective", mode="lines+markers", line={"color": GREEN})
    if stopped := sorted({trial.rate for trial in found.trials if trial.stopped}):
        mark = {"color": VERMILLION, "symbol": "x", "size": 9}
        figure.add_scatter(x=stopped, y=[0.0] * len(stopped), name="cut short", mode="markers", marker=mark)
    _edge(figure, found)
    figure.update_yaxes(title="requests/s", rangemode="tozero")
    figure.update_xaxes(title=OFFERED)
    return look(figure, "goodput")


def around_the_edge(found: Capacity, strains: Sequence[Strain]) -> Any:
    """Each run's tightest objective, with the interval of its percentile."""
    figure = go.Figure()
    for met, name, colour in ((True, "met", BLUE), (False, "missed", VERMILLION)):
        of = [strain for strain in strains if strain.met == met]
        error = {
            "type": "data",
            "symmetric": False,
            "array": plain((strain.high or strain.used) - strain.used for strain in of),
            "arrayminus": plain(strain.used - (strain.low or strain.used) for strain in of),
            "thickness": 1,
        }
        x, y = [strain.rate for strain in of], plain(strain.used for strain in of)
        labels = [strain.objective for strain in of]
        mark = {"color": colour, "symbol": "circle" if met else "x", "size": 9}
        figure.add_scatter(x=x, y=y, name=name, mode="markers", marker=mark, error_y=error, text=labels)
    figure.add_hline(y=1.0, line={"color": GREY, "dash": "dot"})
    _edge(figure, found)
    figure.update_yaxes(title="tightest objective, of its limit", type="log")
    figure.update_xaxes(title=OFFERED)
    return look(figure, "runs around the edge")


def percentiles(found: Capacity, levels: Sequence[Level], measure: str) -> Any:
    """`measure` is ttft or tpot; the objectives on it are dotted."""
    figure = go.Figure()
    rates = [level.rate for level in levels]
    for name, colour in SHOWN.items():
        values: list[Mapping[str, float]] = [getattr(level, f"{measure}_ms") for level in levels]
        y = [value.get(name) for value in values]
        figure.add_scatter(x=rates, y=y, name=name, mode="lines+markers", line={"color": colour})
    for objective in found.search.wanted.each:
        if isinstance(objective, Latency) and objective.measure == measure and objective.quantile in PERCENTILES:
            line = {"color": SHOWN.get(objective.quantile, GREY), "dash": "dot"}
            x, y = [rates[0], rates[-1]], [objective.limit_ms] * 2
            figure.add_scatter(x=x, y=y, name=f"{objective.quantile} objective", mode="lines", line=line)
    figure.update_yaxes(title="ms (logarithmic)", type="log")
    figure.update_xaxes(title=OFFERED)
    return look(figure, f"{measure.upper()} of completed requests")


def stages(levels: Sequence[Level]) -> Any:
    """Rates lie evenly here: the many around the edge would hide each other on a scale."""
    figure = go.Figure()
    told = [level for level in levels if level.stages]
    rates = [f"{level.rate:g}" for level in told]
    for stage in spent.ADDED:
        y = plain(100 * level.stages[stage] for level in told)
        if any(y):
            colour, shape = PAINT[stage]
            pattern = {"shape": shape, "fgcolor": "black", "fgopacity": 0.55, "size": 6, "solidity": 0.25}
            figure.add_bar(x=rates, y=y, name=stage, marker={"color": colour, "pattern": pattern})
    figure.update_xaxes(title=OFFERED, type="category")
    figure.update_yaxes(title="% of all time", range=[0, 100])
    return look(figure, "where requests' time goes", 460).update_layout(barmode="stack", bargap=0.05)


def _edge(figure: Any, found: Capacity, **place: int) -> None:
    if found.estimate is not None:
        shade = {"fillcolor": GREEN, "opacity": 0.15, "line_width": 0}
        figure.add_vrect(x0=found.estimate.low, x1=found.estimate.high, **shade, **place)
        figure.add_vline(x=found.estimate.rate, line={"color": GREEN, "width": 1}, **place)
