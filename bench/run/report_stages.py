"""Where requests' time went, from each one's own stage times: stacked over the percentile of E2E, and on average."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from bench.run.report_plots import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Floats, look, plain
from bench.run.result import Result
from bench.sample import RequestSample
from bench.search.spent import ADDED, SUBSTAGE, UNATTRIBUTED, stages_ms

# Waits and the engine's work have a colour each; our steps before it share one and those after it another.
PAINT = {
    "receive": (SKY, ""),
    "validate": (SKY, "/"),
    "tokenize": (SKY, "x"),
    "admit": (VERMILLION, ""),
    "queue": (ORANGE, ""),
    "prefill": (BLUE, ""),
    "decode": (GREEN, ""),
    "transfer": (PURPLE, ""),
    "dispatch": (PURPLE, "/"),
    "detokenize": (YELLOW, ""),
    "postprocess": (YELLOW, "/"),
    "encode": (YELLOW, "x"),
    "send": (PURPLE, "x"),
    UNATTRIBUTED: (GREY, "."),
}
BARS = 100


@dataclass(frozen=True)
class Breakdown:
    """Of joined requests, fastest first: `stages_ms` is requests x ADDED, `sample_ms` and `e2e_ms` one per request."""

    stages_ms: Floats
    sample_ms: Floats
    e2e_ms: Floats


def breakdown(result: Result) -> Breakdown | None:
    """None when no request brought its stage times."""
    joined = [(sample.e2e_ns, sample) for sample in result.samples if sample.ok and sample.timings is not None]
    ordered = sorted(((e2e, sample) for e2e, sample in joined if e2e is not None), key=lambda pair: pair[0])
    if not ordered:
        return None
    return Breakdown(
        np.array([list(stages_ms(sample).values()) for _, sample in ordered], dtype=np.float64),
        np.array([_sampled(sample) for _, sample in ordered], dtype=np.float64),
        np.array([e2e / 1e6 for e2e, _ in ordered], dtype=np.float64),
    )


def _sampled(sample: RequestSample) -> float:
    parts = (sample.timings or {}).get("substages_ms", {}).values()
    return float(sum(part.get(SUBSTAGE, 0.0) for part in parts))


def stacked(found: Breakdown) -> Any:
    """Bars of one request, or of the mean of as many as share a hundredth of them."""
    bins = np.array_split(np.arange(len(found.e2e_ms)), min(BARS, len(found.e2e_ms)))
    widths = np.array([100 * len(members) / len(found.e2e_ms) for members in bins])
    middles = plain(np.cumsum(widths) - widths / 2)
    figure = go.Figure()
    for index, stage in enumerate(ADDED):
        heights = _means(found.stages_ms[:, index], bins)
        if any(heights):
            figure.add_bar(x=middles, y=heights, width=plain(widths), name=stage, marker=_paint(stage))
    # It lies inside prefill and decode: a line beside the sum, and no part of it.
    if any(found.sample_ms):
        line = {"color": "black", "dash": "dot", "shape": "hvh"}
        name = f"{SUBSTAGE} (inside prefill and decode)"
        figure.add_scatter(x=middles, y=_means(found.sample_ms, bins), name=name, mode="lines", line=line)
    edge = {"color": "black", "width": 1, "shape": "hvh"}
    figure.add_scatter(x=middles, y=_means(found.e2e_ms, bins), name="E2E at the client", mode="lines", line=edge)
    figure.update_xaxes(title="requests by E2E, percentile", range=[0, 100])
    figure.update_yaxes(title="ms", rangemode="tozero")
    figure.update_traces(hovertemplate="%{y:.4~g} ms")
    look(figure, "stages over percentile of requests", 560)
    return figure.update_layout(
        barmode="stack",
        bargap=0,
        hovermode="x unified",
        legend={"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"},
    )


def _paint(stage: str) -> dict[str, Any]:
    colour, shape = PAINT[stage]
    pattern = {"shape": shape, "fgcolor": "black", "fgopacity": 0.55, "size": 6, "solidity": 0.25}
    return {"color": colour, "pattern": pattern, "line": {"width": 0}}


def _means(values: Floats, bins: Sequence[Any]) -> list[float]:
    return plain(values[members].mean() for members in bins)


def shares(found: Breakdown) -> list[tuple[str, float, float, float]]:
    """Of each stage: mean and p99 in ms, and percent of all the time that the server accounts for."""
    total = found.stages_ms.sum() or 1.0
    return [
        (stage, float(column.mean()), float(np.percentile(column, 99)), float(100 * column.sum() / total))
        for stage, column in zip(ADDED, found.stages_ms.T, strict=True)
    ]
