"""What a run came to, for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.run import figures
from bench.run.objectives import Verdict
from bench.run.result import Result

DETAIL_CHARS = 60


def tables(result: Result, verdicts: Sequence[Verdict]) -> Group:
    """Figures, latencies, what went wrong, what stands out, verdicts, and why the figures may not be trusted."""
    return Group(*_parts(result, verdicts))


def _parts(result: Result, verdicts: Sequence[Verdict]) -> Iterator[RenderableType]:
    yield Text(f"{result.spec['model']}, {result.spec['endpoint']}, {figures.load(result.spec)}", style="bold")
    yield _headline(result)
    if rows := figures.latencies(result):
        yield _latencies(rows)
    if reasons := figures.unanswered(result):
        yield _unanswered(reasons)
    for remark in figures.remarks(result):
        yield Text.assemble(("note    ", "yellow"), remark)
    for verdict in verdicts:
        yield Text.assemble(("met     ", "green") if verdict.met else ("MISSED  ", "bold red"), str(verdict))
    for fault in figures.faults(result):
        yield Text.assemble(("INVALID ", "bold red"), fault)


def _headline(result: Result) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for label, text in figures.headline(result):
        table.add_row(label, Text(text, justify="right"))
    return table


def _latencies(rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
    table = Table(title="latency, ms", title_justify="left")
    table.add_column()
    for name in (*figures.QUANTILES, "samples"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, cells in rows:
        table.add_row(label, *cells)
    return table


def _unanswered(rows: Sequence[tuple[str, int, str]]) -> Table:
    table = Table(title="not completed", title_justify="left")
    table.add_column("reason")
    table.add_column("requests", justify="right")
    table.add_column("one of them")
    for reason, count, detail in rows:
        table.add_row(Text(reason), str(count), Text(" ".join(detail.split())[:DETAIL_CHARS]))
    return table
