"""Plots of a run: latencies as distributions and over time, throughput, requests in flight, the server's own series.

Colours are Okabe and Ito's eight, which colour-blind people tell apart (jfly.uni-koeln.de/color, 2008).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from bench.metrics import PERCENTILES
from bench.run.objectives import VALUES_NS, Latency, Objectives, refused
from bench.run.result import Result
from bench.sample import RequestSample

Floats = NDArray[np.float64]

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILLION, PURPLE, GREY = "#E69F00", "#D55E00", "#CC79A7", "#8c8c8c"
MEASURES = {"ttft": ("TTFT", BLUE), "tpot": ("TPOT", GREEN), "gap": ("event gap", ORANGE), "e2e": ("E2E", PURPLE)}
CDF_POINTS = 500
TIME_POINTS = 1000
TIME_BINS = 100
LEAST_BIN_S = 0.5
SECONDS = "seconds since the run's start"
# By panel and its unit, the series that it draws (`bench.run.series` keeps them) and what they are called there.
SERIES = {
    "queue depth, requests": {
        "streamgauge_admission_queued": "waiting for admission",
        "streamgauge_engine_waiting": "waiting in the engine",
        "vllm:num_requests_waiting": "waiting in the engine (vLLM)",
    },
    "effective utilization and batch occupancy, share": {
        "streamgauge_engine_busy_ratio": "effective utilization",
        "streamgauge_batch_occupancy": "batch occupancy",
        "streamgauge_engine_kv_usage_ratio": "KV cache",
        "vllm:kv_cache_usage_perc": "KV cache (vLLM)",
    },
    "requests in the server, requests": {
        "streamgauge_requests_in_flight": "in flight",
        "streamgauge_admission_in_use": "admitted",
        "streamgauge_admission_limit": "admission's limit",
        "vllm:num_requests_running": "running (vLLM)",
    },
}


def plots(result: Result, wanted: Objectives | None) -> Iterator[Any]:
    """Plotly figures; those of nothing are left out."""
    done = [sample for sample in result.samples if sample.ok]
    if done:
        yield distributions(done, wanted)
        yield over_time("TTFT over time, by when a request was due", *_first_tokens(result, done), points=True)
        yield over_time("event gaps over time, by when they ended", *_gaps(result, done), points=False)
    if result.samples:
        yield throughput(result)
        yield in_flight(result)
    yield from server_series(result)


def look(figure: Any, title: str, height: int = 380) -> Any:
    return figure.update_layout(
        title={"text": title, "y": 1, "yanchor": "top", "pad": {"t": 14}},
        template="plotly_white",
        height=height,
        margin={"l": 65, "r": 20, "t": 100, "b": 50},  # the title above a legend of two rows
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        showlegend=True,
    )


def distributions(done: Sequence[RequestSample], wanted: Objectives | None) -> Any:
    """Share of values below x; the axis has one step per nine, so that p99.9 is as plain to see as the median."""
    figure = go.Figure()
    for measure, (label, colour) in MEASURES.items():
        values = np.array([value for sample in done for value in VALUES_NS[measure](sample)], dtype=np.float64)
        if len(values):
            x, percents = cdf(values / 1e6)
            hover = {"customdata": plain(percents), "hovertemplate": "%{x:.4~g} ms, p%{customdata:.4~g}"}
            line = {"color": colour, "width": 2}
            figure.add_scatter(x=plain(x), y=plain(_nines(percents)), name=label, mode="lines", line=line, **hover)
    for latency in _limits(wanted):
        label, colour = MEASURES[latency.measure]
        height = float(_nines(PERCENTILES[latency.quantile]))
        mark = {"color": colour, "symbol": "x", "size": 10, "line": {"color": "black", "width": 1}}
        name = f"{label} {latency.quantile} objective"
        figure.add_scatter(x=[latency.limit_ms], y=[height], name=name, mode="markers", marker=mark, showlegend=False)
    ticks = [0, 50, 90, 99, 99.9, 99.99]
    heights = [float(_nines(tick)) for tick in ticks]
    figure.update_yaxes(title="percentile", tickvals=heights, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_xaxes(title="ms (logarithmic)", type="log", minor={"showgrid": True})
    return look(figure, "latency distributions of completed requests (x: an objective)")


def _limits(wanted: Objectives | None) -> Iterator[Latency]:
    for objective in wanted.each if wanted else ():
        if isinstance(objective, Latency) and objective.quantile in PERCENTILES:
            yield objective


def cdf(values: Floats, points: int = CDF_POINTS) -> tuple[Floats, Floats]:
    """At most `points` values in order and the percent of values below each, half of itself included.

    They lie evenly on the scale of nines: the tail is where values are few and matter.
    """
    ordered, count = np.sort(values), len(values)
    share = 1 - 10.0 ** -np.linspace(0, np.log10(2 * count), points)
    chosen = np.unique((share * count).astype(int))
    return ordered[chosen], 100 * (chosen + 0.5) / count


def _nines(percent: Floats | float) -> Floats:
    return -np.log10(1 - np.asarray(percent, dtype=np.float64) / 100)


def _first_tokens(result: Result, done: Sequence[RequestSample]) -> tuple[Floats, Floats]:
    pairs = [(sample.origin_ns, sample.ttft_ns) for sample in done if sample.ttft_ns is not None]
    return _timed(result, [at for at, _ in pairs], [value for _, value in pairs])


def _gaps(result: Result, done: Sequence[RequestSample]) -> tuple[Floats, Floats]:
    ends = [stamp for sample in done for stamps in sample.generated_stamps.values() for stamp in stamps[1:]]
    return _timed(result, ends, [gap for sample in done for gap in sample.gaps_ns])


def _timed(result: Result, at_ns: Sequence[int], values_ns: Sequence[float]) -> tuple[Floats, Floats]:
    """In seconds since the run's start, and in ms."""
    at, values = np.asarray(at_ns, dtype=np.float64), np.asarray(values_ns, dtype=np.float64)
    return (at - result.origin_ns) / 1e9, values / 1e6


def over_time(title: str, at_s: Floats, values_ms: Floats, *, points: bool) -> Any:
    """Median, p99 and the largest of each interval, and the values themselves where there are not too many."""
    figure = go.Figure()
    if points:
        every = _stride(len(at_s))
        mark = {"color": SKY, "size": 4, "opacity": 0.6}
        x, y = plain(at_s[::every]), plain(values_ms[::every])
        figure.add_scatter(x=x, y=y, name="a request", mode="markers", marker=mark)
    edges = _edges(at_s)
    members = _by_bin(at_s, values_ms, edges)
    middles = [float(edges[index] + edges[index + 1]) / 2 for index in members]
    for name, percent, colour in (("p50", 50, BLUE), ("p99", 99, VERMILLION), ("largest", 100, GREY)):
        y = [float(np.percentile(found, percent)) for found in members.values()]
        line = {"color": colour, "dash": "dot" if percent == 100 else "solid"}
        figure.add_scatter(x=plain(middles), y=plain(y), name=name, mode="lines+markers", line=line)
    figure.update_xaxes(title=SECONDS)
    figure.update_yaxes(title="ms", rangemode="tozero")
    return look(figure, title)


def _edges(at_s: Floats) -> Floats:
    """Of intervals of half a second or more, at most a hundred, over all of `at_s`."""
    if not len(at_s):
        return np.array([0.0, LEAST_BIN_S])
    first, last = float(at_s.min()), float(at_s.max())
    count = max(1, min(TIME_BINS, int((last - first) / LEAST_BIN_S)))
    return np.linspace(first, max(last, first + LEAST_BIN_S), count + 1)


def _by_bin(at_s: Floats, values: Floats, edges: Floats) -> dict[int, Floats]:
    """The values of each interval that has any, in order of time."""
    bins = np.clip(np.searchsorted(edges, at_s, side="right") - 1, 0, len(edges) - 2)
    return {int(index): values[bins == index] for index in np.unique(bins)}


def throughput(result: Result) -> Any:
    """Output tokens of completed requests where their events were read, and what became of requests when they ended."""
    ends = {
        ("completed", BLUE): [sample for sample in result.samples if sample.ok],
        ("refused", ORANGE): [sample for sample in result.samples if not sample.ok and refused(sample)],
        ("failed", VERMILLION): [sample for sample in result.samples if not sample.ok and not refused(sample)],
    }
    at_s, tokens = _tokens(result, ends["completed", BLUE])
    edges = _edges(np.concatenate([at_s, _seconds(result, map(_end_ns, result.samples))]))
    width, middles = edges[1] - edges[0], (edges[1:] + edges[:-1]) / 2
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.6, 0.4])
    rate = np.histogram(at_s, edges, weights=tokens)[0] / width
    line = {"color": GREEN, "shape": "hvh"}
    figure.add_scatter(x=plain(middles), y=plain(rate), name="output tokens/s", line=line, row=1, col=1)
    for (name, colour), samples in ends.items():
        if samples:
            rate = np.histogram(_seconds(result, map(_end_ns, samples)), edges)[0] / width
            figure.add_bar(x=plain(middles), y=plain(rate), name=name, marker={"color": colour}, row=2, col=1)
    figure.update_yaxes(title="tokens/s", rangemode="tozero", row=1)
    figure.update_yaxes(title="requests/s", rangemode="tozero", row=2)
    figure.update_xaxes(title=SECONDS, row=2)
    return look(figure, "throughput over time", 460).update_layout(barmode="stack", bargap=0)


def _tokens(result: Result, done: Sequence[RequestSample]) -> tuple[Floats, Floats]:
    """When generated events were read, and how many tokens each stands for: a request's, shared evenly."""
    stamps = [event.stamp_ns for sample in done for event in sample.events if event.generated]
    tokens = [(sample.output_tokens or 0) / (sample.generated_events or 1) for sample in done]
    counts = [sample.generated_events for sample in done]
    return _seconds(result, stamps), np.repeat(np.array(tokens, dtype=np.float64), np.array(counts, dtype=np.int64))


def in_flight(result: Result) -> Any:
    starts = np.sort(_seconds(result, (sample.sent_ns for sample in result.samples)))
    ends = np.sort(_seconds(result, map(_end_ns, result.samples)))
    at = np.linspace(starts[0], ends[-1], TIME_POINTS)
    count = np.searchsorted(starts, at, side="right") - np.searchsorted(ends, at, side="right")
    figure = go.Figure()
    figure.add_scatter(x=plain(at), y=count.tolist(), name="in flight", line={"color": BLUE, "shape": "hv"})
    figure.update_xaxes(title=SECONDS)
    figure.update_yaxes(title="measured requests", rangemode="tozero")
    return look(figure, "requests in flight, as the client sees them")


def _end_ns(sample: RequestSample) -> int:
    """The last that was heard of it."""
    last = sample.events[-1].stamp_ns if sample.events else None
    return next(stamp for stamp in (sample.done_ns, last, sample.headers_ns, sample.sent_ns) if stamp is not None)


def _seconds(result: Result, stamps_ns: Iterable[int]) -> Floats:
    return (np.fromiter(stamps_ns, dtype=np.float64) - result.origin_ns) / 1e9


def server_series(result: Result) -> Iterator[Any]:
    for title, labels in SERIES.items():
        found = {labels[name]: result.series[name] for name in labels if result.series.get(name)}
        if found:
            yield _lines(title, found)


def _lines(title: str, found: Mapping[str, Sequence[tuple[float, float]]]) -> Any:
    figure = go.Figure()
    for (label, values), colour in zip(found.items(), (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY), strict=False):
        kept = values[:: _stride(len(values))]
        x, y = plain(at for at, _ in kept), plain(value for _, value in kept)
        figure.add_scatter(x=x, y=y, name=label, mode="lines", line={"color": colour})
    figure.update_xaxes(title=SECONDS)
    figure.update_yaxes(title=title.partition(", ")[2], rangemode="tozero")
    return look(figure, f"server: {title.partition(', ')[0]}")


def _stride(count: int) -> int:
    """Every how many-th of so many values leaves no more than are plotted."""
    return max(1, -(-count // TIME_POINTS))


def plain(values: Iterable[float]) -> list[float]:
    """Six figures each: more would only make the page large."""
    return [float(f"{value:.6g}") for value in values]
