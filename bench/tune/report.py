"""What a search for settings came to: in a sentence, as JSON, and as one HTML page that needs nothing else."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import orjson

from bench.procfs import machine
from bench.run import figures
from bench.tune.decide import CONFIDENCE, LEAST_PAIRED, MOST_PAIRED, OUTSTANDING, Pairing, Trial, Verdict
from bench.tune.search import STRESS, Edge, Record
from bench.tune.space import Space, key, words

FORMAT = 1
METHOD = (
    "Candidates are proposed by a Tree-structured Parzen Estimator (Optuna), after steps of a single knob; the better "
    "half of the short trials goes on to longer ones, and one with {outstanding:g} times the incumbent's goodput is "
    "paired at once. All are at {stress:g} times the highest rate at which the "
    "incumbent meets its objectives: at that rate itself nothing can be better. Finalists and incumbent are visited in "
    "turn, A B B A. A candidate wins when the interval of its goodput over the incumbent's, by a bootstrap of visits "
    "and requests at {confidence:.2%} (95 % shared by {most} comparisons), lies above one, the ratio itself above one "
    "plus the A/A width, by which two visits of one server differ, and does so again in a second round. Of fewer than "
    "{least} paired candidates "
    "nothing follows unless one wins."
)


def answer(record: Record) -> str:
    """For people: the verdict, and what it rests on."""
    paired = f"{len(record.pairings)} candidates were paired, after {len(record.trials)} trials; {record.ended}"
    winner = record.winner
    match record.verdict:
        case Verdict.BETTER if winner is not None:
            found = winner.ratio
            figure = f"{found.value:.2f} times the incumbent's goodput at {winner.rate:g} requests/s"
            interval = f"[{found.low:.2f}, {found.high:.2f}]"
            return f"Better: {words(winner.changes)}: {figure} {interval}.{_edges(record, winner)} {paired}."
        case Verdict.NONE_BETTER:
            return f"None is better than the settings as they are, which stay. {paired}."
        case _:
            return f"Insufficient evidence, which is not that none is better; the settings stay. {paired}."


def _edges(record: Record, winner: Pairing) -> str:
    """What either side's own edge was, where both are known: goodput past it says nothing of that."""
    by_name = {key(edge.changes): edge.rate for edge in record.edges}
    before, after = (by_name.get(key(changes)) for changes in (winner.incumbent, winner.changes))
    if before is None or after is None:
        return ""
    return f" Its own edge is {after:g} requests/s, the incumbent's {before:g}."


def exit_code(record: Record) -> int:
    """1 for insufficient evidence."""
    return 1 if record.verdict is Verdict.INSUFFICIENT else 0


def method() -> str:
    return METHOD.format(
        stress=STRESS, outstanding=OUTSTANDING, confidence=CONFIDENCE, most=MOST_PAIRED, least=LEAST_PAIRED
    )


def faults(record: Record) -> list[str]:
    """Of the paired visits, whose figures decide."""
    return [
        f"pairing {number}: {fault}"
        for number, pairing in enumerate(record.pairings, start=1)
        for each in pairing.rounds
        for visit in each.visits
        for fault in visit.faults
    ]


def as_dict(record: Record, space: Space, started: str) -> dict[str, Any]:
    winner = record.winner
    return {
        "format": FORMAT,
        "started": started,
        "answer": answer(record),
        "verdict": record.verdict,
        "ended": record.ended,
        "seconds": record.seconds,
        "budget_s": record.plan.budget_s,
        "changes": {} if winner is None else winner.changes,
        "slo": record.plan.edge.wanted.text,
        "spec": record.plan.edge.spec.as_dict(),
        "machine": machine(),
        "method": method(),
        "faults": faults(record),
        "knobs": [{"name": knob.name, "restart": knob.restart, "choices": knob.choices} for knob in space.knobs],
        "edges": record.edges,
        "trials": [trial.as_dict() for trial in record.trials],
        "pairings": [pairing.as_dict() for pairing in record.pairings],
    }


def save_json(folder: Path, record: Record, space: Space, started: str) -> Path:
    """As `tune.json` in `folder`, which exists; raises OSError."""
    path = folder / "tune.json"
    path.write_bytes(orjson.dumps(as_dict(record, space, started), option=orjson.OPT_INDENT_2, default=str))
    return path


def save_html(folder: Path, record: Record, space: Space, started: str) -> Path:
    """As `report.html` in `folder`, which exists; raises OSError."""
    path = folder / "report.html"
    path.write_text(html(record, space, started), encoding="utf-8")
    return path


def html(record: Record, space: Space, started: str) -> str:
    from plotly.offline import get_plotlyjs  # plotly takes a second to import

    from bench.run.report import STYLE

    title = escape(f"settings for {record.plan.edge.wanted.text}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>"
        f"<h1>{title}</h1><p>{escape(started)}</p>{''.join(_body(record, space))}</body></html>\n"
    )


def _body(record: Record, space: Space) -> Iterator[str]:
    from bench.tune.plots import plots

    yield f'<p style="font-size: 1.3em">{escape(answer(record))}</p>'
    yield from (f'<p class="mark">Not the server alone: {escape(fault)}</p>' for fault in faults(record))
    yield f'<div class="plots">{"".join(_plot(figure, css) for figure, css in plots(record))}</div>'
    yield _table("Pairings", PAIRED, (_pairing_row(number, each) for number, each in enumerate(record.pairings, 1)))
    yield _table("Edges", EDGES, map(_edge_row, record.edges))
    yield _table("Trials", TRIALS, (_trial_row(number, each) for number, each in enumerate(record.trials, 1)))
    yield _table("What could change", ("", "needs a restart of", "choices"), _knob_rows(space))
    yield f"<p>{escape(method())}</p>"
    for name, settings in (("Load", record.plan.edge.spec.as_dict()), ("Machine", machine())):
        yield f"<details><summary>{name}</summary>{_table('', ('', ''), figures.settings(settings))}</details>"


PAIRED = ("", "settings", "against", "requests/s", "good %", "of the incumbent", "goodput ratio", "A/A width", "")
EDGES = ("settings", "requests/s", "met")
TRIALS = ("", "round", "settings", "good %", "requests", "error")


def _pairing_row(number: int, pairing: Pairing) -> Sequence[str]:
    found = pairing.ratio
    last = pairing.rounds[-1]
    shares = (" / ".join(f"{visit.share:.0%}" for visit in side) for side in (last.other, last.base))
    ratio = f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
    settings = words(pairing.changes), words(pairing.incumbent)
    verdict = "✓ wins twice" if pairing.won else "won once, not confirmed" if pairing.open else "does not win"
    return [str(number), *settings, f"{pairing.rate:g}", *shares, ratio, f"{found.aa_width:.1%}", verdict]


def _edge_row(edge: Edge) -> Sequence[str]:
    return [words(edge.changes), f"{edge.rate:g}", "yes" if edge.met else "no rate did"]


def _trial_row(number: int, trial: Trial) -> Sequence[str]:
    requests = figures.NONE if trial.visit is None else str(len(trial.visit.good))
    score = f"{100 * trial.score:.0f}"
    return [str(number), str(trial.rung + 1), words(trial.changes), score, requests, (trial.error or "")[:200]]


def _knob_rows(space: Space) -> Iterator[Sequence[str]]:
    for knob in space.knobs:
        yield knob.name, knob.restart, " | ".join(words(choice) for choice in knob.choices)


def _plot(figure: Any, css: str) -> str:
    config = {"displaylogo": False, "responsive": True}
    return f'<div class="{css}">{figure.to_html(full_html=False, include_plotlyjs=False, config=config)}</div>'


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = f"{_row('th', header)}{''.join(_row('td', row) for row in rows)}"
    return f'{f"<h2>{escape(title)}</h2>" if title else ""}<table class="words">{body}</table>'


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
