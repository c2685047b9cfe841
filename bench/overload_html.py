"""The results as one HTML page that needs nothing from elsewhere: plotly's script is in it."""

from collections import Counter
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from bench.metrics import percentile
from bench.overload_arms import OURS, STOCK, STOCK_QUEUE
from bench.overload_point import Answered, Fate, quarters
from bench.overload_report import text_report
from bench.overload_results import Results
from bench.overload_step import IN_USE, LIMIT, QUEUED, Step

COLOURS = {OURS: "#1d4ed8", STOCK: "#b91c1c", STOCK_QUEUE: "#d97706"}
OTHER_COLOUR = "#4b5563"
FATE_COLOURS = {Fate.GOOD: "#15803d", Fate.LATE: "#d97706", Fate.REFUSED: "#1d4ed8", Fate.FAILED: "#b91c1c"}
STEP_BIN_S = 5.0

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Overload</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 1320px; color: #111827; }}
pre {{ font-size: 10.5px; background: #f3f4f6; padding: 1rem; overflow-x: auto; }}
.plots {{ display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }}
.wide {{ grid-column: 1 / -1; }}
</style>
<script>{script}</script></head><body>
<h1>Overload</h1>
<p>{summary}</p>
<div class="plots">{plots}</div>
<pre>{text}</pre>
</body></html>
"""


def html_report(results: Results) -> str:
    plots = "".join(f'<div class="{css}">{_div(figure)}</div>' for figure, css in _figures(results))
    return PAGE.format(
        script=get_plotlyjs(), summary=escape(_summary(results)), plots=plots, text=escape(text_report(results))
    )


def _summary(results: Results) -> str:
    objectives = results.facts.get("objectives")
    promise = ""
    if isinstance(objectives, dict):
        promise = f"A request is good when its first token came within {objectives['ttft_s']:g} s of its scheduled "
        promise += f"arrival and each further one within {objectives['tpot_s'] * 1e3:g} ms on average. "
    capacity = results.capacity
    if capacity is None:
        return promise
    return promise + f"Capacity ({capacity.source}): {capacity.requests_per_s:.3g} requests/s in a closed loop."


def _div(figure: Any) -> str:
    html: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return html


def _figures(results: Results) -> Iterator[tuple[Any, str]]:
    if results.points:
        yield _over_load(results, "Goodput", "requests/s", results.goodput, offered=True), ""
        yield _over_load(results, "Goodput in tokens", "output tokens/s", results.token_goodput), ""
        yield _ttft(results), ""
    if any(one.refused for point in results.points for one in point.answered):
        yield _refused(results), ""
    if results.step is not None:
        yield _step(results.step), "wide"


def _over_load(
    results: Results,
    title: str,
    unit: str,
    value: Callable[[str, float], float | None],
    *,
    offered: bool = False,
) -> Any:
    figure = go.Figure()
    if offered:
        rates = sorted({(point.factor, point.rate) for point in results.points})
        x, y = [factor for factor, _ in rates], [rate for _, rate in rates]
        figure.add_scatter(x=x, y=y, name="offered", line={"color": "#9ca3af", "dash": "dot"}, mode="lines")
    for arm in results.arms:
        factors = results.factors(arm)
        values = [value(arm, factor) for factor in factors]
        figure.add_scatter(x=factors, y=values, name=arm, line={"color": COLOURS.get(arm, OTHER_COLOUR)})
    figure.update_yaxes(title=unit, rangemode="tozero")
    figure.update_xaxes(title="offered load, as a multiple of capacity", rangemode="tozero")
    return figure.update_layout(title=title, **_look())


def _look() -> dict[str, Any]:
    return {
        "template": "plotly_white",
        "height": 380,
        "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
        "showlegend": True,
    }


def _ttft(results: Results) -> Any:
    figure = _over_load(results, "TTFT p99 of completed requests", "seconds", _ttft_p99_of(results))
    figure.add_hline(y=results.points[0].objectives.ttft_s, line={"color": "#9ca3af", "dash": "dot"})
    return figure.update_yaxes(type="log", dtick="D2")


def _ttft_p99_of(results: Results) -> Callable[[str, float], float | None]:
    def p99(arm: str, factor: float) -> float | None:
        done = [one.sample for one in results.answered(arm, factor) if one.sample.ok]
        found = sorted(sample.ttft_ns for sample in done if sample.ttft_ns is not None)
        return percentile(found, 99) / 1e9 if found else None

    return p99


def _refused(results: Results) -> Any:
    """One panel for each arm that refuses at all, one bar for each load at which it does."""
    arms = [arm for arm in results.arms if any(_refusing(results, arm))]
    figure = make_subplots(cols=len(arms), shared_yaxes=True, subplot_titles=arms)
    longest = max((point.answered for point in results.points), key=len)
    labels = [f"{quarter[0].request.tokens}-{quarter[-1].request.tokens}" for quarter in quarters(longest)]
    for column, arm in enumerate(arms, start=1):
        for factor in _refusing(results, arm):
            share = [100 * part for part in results.refused_shares(arm, factor)]
            figure.add_bar(x=labels, y=share, name=f"{arm}, {factor:g}x", row=1, col=column)
    figure.update_yaxes(title="refused, %", range=[0, 100], col=1)
    figure.update_xaxes(title="tokens, prompt and output")
    return figure.update_layout(title="Refused, by quarter of request length", **_look())


def _refusing(results: Results, arm: str) -> Iterator[float]:
    return (factor for factor in results.factors(arm) if any(results.refused_shares(arm, factor)))


def _step(step: Step) -> Any:
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08)
    for name, label in ((LIMIT, "limit"), (IN_USE, "in use"), (QUEUED, "queued")):
        x, y = step.line(name)
        shape = "hv" if name == LIMIT else "linear"
        figure.add_scatter(x=x, y=y, name=label, mode="lines", line={"shape": shape}, row=1, col=1)
    point = step.point
    lines = [("arrivals", "#9ca3af", list(point.answered))]
    lines += [(str(fate), colour, point.with_fate(fate)) for fate, colour in FATE_COLOURS.items()]
    for label, colour, answered in lines:
        x, y = _per_second(step, answered)
        line = {"shape": "hv", "color": colour}
        figure.add_scatter(x=x, y=y, name=label, mode="lines", line=line, row=2, col=1)
    figure.update_yaxes(title="sequences, requests", rangemode="tozero", row=1)
    figure.update_yaxes(title="requests/s by arrival", rangemode="tozero", row=2)
    figure.update_xaxes(title="seconds", row=2)
    rates_text = " → ".join(f"{rate:.2g}" for rate in step.rates)
    look = _look() | {"height": 620}
    return figure.update_layout(title=f"Step of load: {rates_text} requests/s", **look)


def _per_second(step: Step, answered: list[Answered]) -> tuple[list[float], list[float]]:
    bins = Counter(int(step.seconds(one.sample.origin_ns) // STEP_BIN_S) for one in answered)
    last = int(step.phase_s * len(step.rates) // STEP_BIN_S)
    return [index * STEP_BIN_S for index in range(last + 1)], [bins[index] / STEP_BIN_S for index in range(last + 1)]
