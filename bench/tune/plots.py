"""Plots of a search for settings."""

from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bench.run.report_plots import BLUE, GREEN, GREY, ORANGE, SKY, VERMILLION, look
from bench.tune.search import Record
from bench.tune.space import Changes, words

GOOD = "good requests, %"
RUNG_COLOURS = (SKY, BLUE, ORANGE)
COLUMNS = 3
LABEL_CHARS = 40


def plots(record: Record) -> Iterator[tuple[Any, str]]:
    """Plotly figures, each with the class of its place on the page; those of nothing are left out."""
    if record.pairings:
        yield paired(record), "wide"
    if record.trials:
        yield over_time(record), "wide"
    if by_path := values_by_path(record):
        yield by_knob(by_path), "wide"


def paired(record: Record) -> Any:
    """What decides: one wins whose interval lies right of one, and itself right of one plus its A/A width."""
    figure = go.Figure()
    names = [_label(number, pairing.changes) for number, pairing in enumerate(record.pairings, start=1)]
    for won, label, colour in ((True, "wins", GREEN), (False, "does not win", GREY)):
        shown = [(name, each.ratio) for name, each in zip(names, record.pairings, strict=True) if each.won is won]
        right, left = [found.high - found.value for _, found in shown], [found.value - found.low for _, found in shown]
        error = {"type": "data", "symmetric": False, "array": right, "arrayminus": left}
        x, y = [found.value for _, found in shown], [name for name, _ in shown]
        figure.add_scatter(x=x, y=y, name=label, mode="markers", marker={"color": colour, "size": 10}, error_x=error)
    needed = [1 + pairing.ratio.aa_width for pairing in record.pairings]
    mark = {"symbol": "line-ns-open", "size": 18, "color": VERMILLION}
    figure.add_scatter(x=needed, y=names, name="1 + A/A width", mode="markers", marker=mark)
    figure.add_vline(x=1.0, line={"color": GREY, "dash": "dot"})
    figure.update_xaxes(title="goodput, times the incumbent's (logarithmic)", type="log")
    figure.update_yaxes(automargin=True, categoryorder="array", categoryarray=names[::-1])
    return look(figure, "candidates paired with the incumbent, the last round of each", 220 + 45 * len(names))


def _label(number: int, changes: Changes) -> str:
    """Short enough to leave room for the plot; the table has all of it."""
    said = words(changes)
    return f"{number}: {said if len(said) <= LABEL_CHARS else said[:LABEL_CHARS] + '…'}"


def over_time(record: Record) -> Any:
    figure = go.Figure()
    for rung, colour in enumerate(RUNG_COLOURS):
        shown = [trial for trial in record.trials if trial.rung == rung]
        if shown:
            x, y = [trial.at_s for trial in shown], [100 * trial.score for trial in shown]
            text = [words(trial.changes) + (f": {trial.error}" if trial.error else "") for trial in shown]
            mark = {"color": colour, "size": 9, "symbol": ["x" if trial.error else "circle" for trial in shown]}
            figure.add_scatter(x=x, y=y, text=text, name=f"round {rung + 1}", mode="markers", marker=mark)
    for name, colour, sides in (("incumbent", GREY, "base"), ("paired candidate", GREEN, "other")):
        rounds = [(pairing.at_s, each) for pairing in record.pairings for each in pairing.rounds]
        visits = [(at, visit) for at, each in rounds for visit in getattr(each, sides)]
        x, y = [at for at, _ in visits], [100 * visit.share for _, visit in visits]
        mark = {"color": colour, "symbol": "diamond-open", "size": 9}
        figure.add_scatter(x=x, y=y, name=name, mode="markers", marker=mark)
    figure.update_xaxes(title="seconds since the search began")
    figure.update_yaxes(title=GOOD, rangemode="tozero")
    return look(figure, "all trials, by when they ended", 420)


def values_by_path(record: Record) -> dict[str, list[tuple[str, float]]]:
    """By changed setting, of each trial that ran: the value it had and its score; unchanged it is `as it is`."""
    ran = [trial for trial in record.trials if trial.error is None]
    paths = sorted({path for trial in ran for path in trial.changes})
    return {path: [(_value(trial.changes, path), trial.score) for trial in ran] for path in paths}


def _value(changes: Changes, path: str) -> str:
    return words({path: changes[path]}).partition("=")[2] if path in changes else "as it is"


def by_knob(by_path: dict[str, list[tuple[str, float]]]) -> Any:
    rows = -(-len(by_path) // COLUMNS)
    titles = [path.rpartition(".")[2] for path in by_path]
    figure = make_subplots(rows, COLUMNS, subplot_titles=titles, shared_yaxes=True, vertical_spacing=0.25 / rows)
    for place, scores in enumerate(by_path.values()):
        x, y = [value for value, _ in scores], [100 * score for _, score in scores]
        mark = {"color": BLUE, "opacity": 0.6, "size": 8}
        where = {"row": place // COLUMNS + 1, "col": place % COLUMNS + 1}
        figure.add_scatter(x=x, y=y, mode="markers", marker=mark, showlegend=False, **where)
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return look(figure, f"{GOOD}, by what a setting was changed to", 120 + 240 * rows)
