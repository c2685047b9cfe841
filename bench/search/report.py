"""What a search has found: in a sentence, as JSON, and as one HTML page that needs nothing from elsewhere."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import orjson

from bench.run import figures
from bench.run.figures import number
from bench.search import curve
from bench.search.capacity import SCALE_CONCURRENCY, Capacity, Point
from bench.search.curve import Level
from bench.search.diagnosis import Finding, diagnose, findings

FORMAT = 1
IN_FLIGHT_VALUES = 100  # of a point: enough to see it rise
METHOD = (
    "Capacity is the rate of Poisson arrivals at which a run as long as these meets its objectives as often as not: "
    "the median of a logistic threshold's posterior over all runs (Kontsevich and Tyler 1999), with its {confidence:g} "
    "% interval. Whiskers are a percentile's 95 % interval by moving-blocks bootstrap (Künsch 1989). The knee is "
    "Kneedle's (Satopaa et al. 2011), of TTFT {knee}. Unless it is close to the edge, a run is cut short, and has "
    "missed, once its objectives are out of reach or requests in flight and TTFT both keep rising (Mann 1945)."
)


def answer(found: Capacity) -> str:
    """One sentence, or two where the figure needs a warning; of a search with at least one point."""
    known, rates = found.estimate, [trial.rate for trial in found.trials]
    if known is None:
        if found.trials[0].met:
            return f"More than {max(rates):g} requests/s: every run up to there met {found.search.wanted.text}."
        return f"Less than {min(rates):g} requests/s: no run, down to there, met {found.search.wanted.text}."
    interval = f"{100 * known.confidence:g} % interval {number(known.low)} to {number(known.high)}"
    text = f"{number(known.rate)} requests/s ({interval}) meet {found.search.wanted.text} as often as not."
    least_missed = min(trial.rate for trial in found.trials if not trial.met)
    if safe := [trial.rate for trial in found.trials if trial.rate < least_missed]:
        text += f" Every run up to {number(max(safe))} did."
    if len(found.trials) >= found.plan.most_trials:
        text += f" The search ended at its {found.plan.most_trials} runs."
    return text


def diagnosis(found: Capacity) -> list[Finding]:
    if found.edge is None and found.past is None:  # every run was cut short, and the closed loop is all there is
        return diagnose(found.scale)
    return findings(found.calm, found.edge, found.past)


def as_dict(found: Capacity) -> dict[str, Any]:
    levels = curve.levels(found)
    estimate, plan = found.estimate, found.plan
    return {
        "format": FORMAT,
        "answer": answer(found),
        "slo": found.search.wanted.text,
        "spec": found.search.spec.as_dict(),
        "method": _method(found),
        "scale": {"concurrency": SCALE_CONCURRENCY, "requests_per_s": found.scale.summary.requests_per_s},
        "plan": {name: getattr(plan, name) for name in ("start", "low", "high", "width", "repeat")},
        "estimate": None if estimate is None else estimate.as_dict(),
        "bracket": found.bracket._asdict(),
        "knee": curve.bend(levels),
        "levels": [level.as_dict() for level in levels],
        "around_the_edge": [strain.as_dict() for strain in curve.strains(found)],
        "findings": [finding.as_dict() for finding in diagnosis(found)],
        "points": [_point(index, point) for index, point in enumerate(found.points)],
    }


def _method(found: Capacity) -> str:
    confidence = 95.0 if found.estimate is None else 100 * found.estimate.confidence
    return METHOD.format(confidence=confidence, knee=curve.KNEE_OF)


def _point(index: int, point: Point) -> dict[str, Any]:
    return {
        **point.trial.as_dict(),
        "folder": None if point.result is None else folder_of(index, point),
        "faults": [] if point.result is None else point.result.faults,
        "verdicts": [str(verdict) for verdict in point.verdicts],
        "in_flight": point.in_flight[:: len(point.in_flight) // IN_FLIGHT_VALUES + 1],
    }


def folder_of(index: int, point: Point) -> str:
    """Of a point's result.json, from the search's folder on."""
    return f"points/{index:02}-at-{point.trial.rate:g}"


def save_json(folder: Path, found: Capacity) -> Path:
    """As `capacity.json` in `folder`, which exists; raises OSError."""
    path = folder / "capacity.json"
    path.write_bytes(orjson.dumps(as_dict(found), option=orjson.OPT_INDENT_2, default=str))
    return path


def save_html(folder: Path, found: Capacity) -> Path:
    """As `report.html` in `folder`, which exists; raises OSError."""
    path = folder / "report.html"
    path.write_text(html(found), encoding="utf-8")
    return path


def html(found: Capacity) -> str:
    from plotly.offline import get_plotlyjs  # plotly takes a second to import

    from bench.run.report import STYLE

    title = escape(f"{found.search.spec.model}, capacity")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>"
        f"<h1>{title}</h1>{''.join(_body(found))}</body></html>\n"
    )


def _body(found: Capacity) -> Iterator[str]:
    from bench.search.plots import plots

    spec = found.search.spec
    yield f"<p>{escape(spec.url)}, {escape(spec.endpoint)}, {escape(found.scale.started)}</p>"
    yield f'<p style="font-size: 1.3em">{escape(answer(found))}</p>'
    yield _diagnosis(diagnosis(found))
    yield f'<div class="plots">{"".join(_plot(figure, css) for figure, css in plots(found))}</div>'
    yield _table(LEVELS, map(_level_row, curve.levels(found)))
    yield "<h2>Runs, in their order</h2>"
    yield _table(RUNS, (_run_row(index, point) for index, point in enumerate(found.points)), "words")
    yield f"<p>{escape(_method(found))}</p>"
    for name, settings in (("Settings", spec.as_dict()), ("Machine, versions", found.scale.facts)):
        yield f"<details><summary>{name}</summary>{_table(('', ''), figures.settings(settings), 'words')}</details>"


def _diagnosis(said: Sequence[Finding]) -> str:
    if not said:
        return "<h2>What gives</h2><p>No rule found anything remarkable.</p>"
    items = (f"<li>{escape(finding.text)}</li>" for finding in said)
    return f"<h2>What gives</h2><ul>{''.join(items)}</ul>"


LEVELS = (
    *("offered requests/s", "runs", "met", "completed/s", "goodput/s", "tokens/s"),
    *("TTFT p50/p90/p99 ms", "TPOT p50/p90/p99 ms", "E2E p50/p90/p99 ms"),
)
RUNS = ("", "requests/s", "seed", "", "objectives, or why it was cut short")


def _level_row(level: Level) -> Sequence[str]:
    rates = map(number, (level.requests_per_s, level.goodput, level.output_tokens_per_s))
    return [f"{level.rate:g}", str(level.runs), str(level.met), *rates, *map(_three, _latencies(level))]


def _latencies(level: Level) -> Iterator[Sequence[float]]:
    for found in (level.ttft_ms, level.tpot_ms, level.e2e_ms):
        yield [found[name] for name in ("p50", "p90", "p99") if name in found]


def _three(values: Sequence[float]) -> str:
    return " / ".join(map(number, values)) or figures.NONE


def _run_row(index: int, point: Point) -> Sequence[str]:
    trial = point.trial
    why = trial.stopped or "; ".join(map(str, point.verdicts))
    return [str(index), f"{trial.rate:g}", str(trial.seed), "✓ met" if trial.met else "✗ MISSED", why]


def _plot(figure: Any, css: str) -> str:
    config = {"displaylogo": False, "responsive": True}
    return f'<div class="{css}">{figure.to_html(full_html=False, include_plotlyjs=False, config=config)}</div>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], css: str = "") -> str:
    return f'<table class="{css}">{_row("th", header)}{"".join(_row("td", row) for row in rows)}</table>'


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
