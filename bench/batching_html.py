"""The case as one self-contained page: plots first, then the tables of the text report."""

from collections.abc import Iterator, Sequence
from html import escape

from bench import batching_chapter as chapter
from bench.batching_experiments import Case
from bench.batching_plots import figures
from bench.batching_report import Row, conclusion, tables

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1160px; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse; font-size: 13px } th, td { padding: .25em .7em; text-align: right }
th:first-child, td:first-child { text-align: left; white-space: nowrap }
th { border-bottom: 1px solid #999 } tr:nth-child(even) { background: #f5f5f5 }
"""


def html(case: Case) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The batching case</title>'
        f"<style>{STYLE}</style></head><body>{''.join(_body(case))}</body></html>\n"
    )


def _body(case: Case) -> Iterator[str]:
    yield "<h1>The serving chapter's batching case</h1>"
    yield _list(conclusion(case))
    yield f"<h2>Simulated, seed {case.seed}</h2>"
    yield _list(chapter.traffic())
    yield "<h2>What the chapter's figures imply</h2>"
    yield _list(chapter.implications())
    yield from figures(case)
    for title, rows in tables(case):
        yield f"<h2>{escape(title)}</h2>"
        yield _table(rows)


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _table(rows: Sequence[Row]) -> str:
    header, *body = rows
    return f"<table>{_row('th', header)}{''.join(_row('td', row) for row in body)}</table>"


def _row(tag: str, cells: Row) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
