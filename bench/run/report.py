"""A run as one HTML page that needs nothing from elsewhere: plotly's script is in it."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from bench.run import figures
from bench.run.objectives import Objectives, Verdict
from bench.run.report_plots import plots
from bench.run.report_stages import Breakdown, breakdown, shares, stacked
from bench.run.result import Result

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 1320px; }
h1 { font-size: 1.5em; margin-bottom: 0 } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse; font-size: 13px }
th, td { padding: .25em .8em; text-align: right; vertical-align: top }
th:first-child, td:first-child, .words th, .words td { text-align: left }
th { border-bottom: 1px solid #999 }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0 }
.cards div { border: 1px solid #9998; border-radius: 6px; padding: .4rem .9rem }
.cards b { display: block; font-size: 1.25em }
.mark { border-left: 6px solid #D55E00; background: #D55E0022; padding: .5rem 1rem; margin: .5rem 0 }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(520px, 1fr)); gap: 1rem; margin: 1rem 0 }
.plots > div { background: white; border-radius: 6px; overflow: hidden }
.wide { grid-column: 1 / -1 }
details { margin-top: 1.5em } summary { cursor: pointer }
"""


def save(folder: Path, result: Result, wanted: Objectives | None) -> Path:
    """As `report.html` in `folder`, which exists; raises OSError."""
    path = folder / "report.html"
    path.write_text(html(result, wanted), encoding="utf-8")
    return path


def html(result: Result, wanted: Objectives | None) -> str:
    title = escape(f"{result.spec['model']}, {figures.load(result.spec)}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>"
        f"<h1>{title}</h1>{''.join(_body(result, wanted))}</body></html>\n"
    )


def _body(result: Result, wanted: Objectives | None) -> Iterator[str]:
    stages = breakdown(result)
    yield f"<p>{escape(str(result.spec['url']))}, {escape(str(result.spec['endpoint']))}, {escape(result.started)}</p>"
    yield from (_mark(f"Invalid: {fault}") for fault in figures.faults(result))
    yield _cards(result)
    if wanted is not None:
        yield _verdicts(wanted.judge(result))
    yield _table("Latency, ms", ["", *figures.QUANTILES, "samples"], ([a, *b] for a, b in figures.latencies(result)))
    if reasons := figures.unanswered(result):
        yield _table(
            "Not completed", ["reason", "requests", "one of them"], ([a, str(b), c] for a, b, c in reasons), "words"
        )
    if remarks := figures.remarks(result):
        yield f"<h2>What stands out</h2><ul>{''.join(f'<li>{escape(remark)}</li>' for remark in remarks)}</ul>"
    yield _joined(result)
    drawn = [(stacked(stages), "wide")] if stages else []
    drawn += [(figure, "") for figure in plots(result, wanted)]
    yield f'<div class="plots">{"".join(_plot(figure, css) for figure, css in drawn)}</div>'
    if stages:
        yield _shares(stages)
    yield _details("Settings", figures.settings(result.spec))
    yield _details("Machine, versions, client", figures.settings(result.facts))


def _cards(result: Result) -> str:
    cards = (f"<div>{escape(label)}<b>{escape(text)}</b></div>" for label, text in figures.headline(result))
    return f'<div class="cards">{"".join(cards)}</div>'


def _mark(text: str) -> str:
    return f'<p class="mark">{escape(text)}</p>'


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = (["✓ met" if verdict.met else "✗ MISSED", str(verdict)] for verdict in verdicts)
    return _table("Objectives", None, rows, "words")


def _joined(result: Result) -> str:
    """Stage times of some requests only are those of a selection, whoever selected."""
    have, done = figures.joined(result)
    if not done:
        return ""
    if not have:
        return "<p>No request has stage times: the server gave none, or was not asked.</p>"
    text = f"Stage times of {have:,} of {done:,} completed requests ({100 * have / done:.4g} %)"
    return f"<p>{text}.</p>" if have == done else _mark(f"{text}: where time went is not known of the others.")


def _plot(figure: Any, css: str) -> str:
    config = {"displaylogo": False, "responsive": True}
    return f'<div class="{css}">{figure.to_html(full_html=False, include_plotlyjs=False, config=config)}</div>'


def _shares(stages: Breakdown) -> str:
    rows = [
        [name, figures.number(mean), figures.number(p99), f"{share:.2f}"] for name, mean, p99, share in shares(stages)
    ]
    note = "<p>Stages are the server's; the network and a late generator are in E2E at the client only.</p>"
    return _table("Stages", ["", "mean ms", "p99 ms", "% of all time"], rows) + note


def _details(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return f"<details><summary>{escape(title)}</summary>{_table(None, None, rows, 'words')}</details>"


def _table(title: str | None, header: Sequence[str] | None, rows: Iterable[Sequence[str]], css: str = "") -> str:
    head = "" if header is None else _row("th", header)
    body = "".join(_row("td", row) for row in rows)
    heading = "" if title is None else f"<h2>{escape(title)}</h2>"
    return f'{heading}<table class="{css}">{head}{body}</table>'


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
