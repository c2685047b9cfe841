"""What load generators say of answers that are known: tables in markdown of the truth and of each tool's figures.

    python -m tests.clients.truth_table [--output FILE] [--case NAME ...] [--tool NAME ...] [--requests N]

Run by hand, on an otherwise idle machine; some minutes. Needs the default model's tokenizer and `make clients`.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.metrics import Distribution
from tests.clients.truth_tools import CHAT, NAMES, TOOLS, Figure, Figures, ToolFailed, of_distribution
from tests.support.truth_server import Asked, Script, Told, truth_server

REQUESTS = 80
SHARE = 0.01
FLOOR_MS = 0.5
EVENTS = 24
SPREAD_S = 0.008
NOT_FOUND = Script(status=404, message="there is only chat")

CASES = {
    "plain": Script(events=EVENTS),
    "role chunk at once": Script(events=EVENTS, role="early"),
    "role chunk right before the first token": Script(events=EVENTS, role="late"),
    "8 thoughts first": Script(events=EVENTS, reasoning=8),
    "4 events per packet": Script(events=EVENTS, per_packet=4),
    "3 tokens per event": Script(events=EVENTS, tokens_per_event=3),
    "text that encodes to fewer tokens": Script(events=EVENTS, text="an"),
    "CRLF": Script(events=EVENTS, line_end="\r\n"),
    "CRLF, 8 thoughts first": Script(events=EVENTS, line_end="\r\n", reasoning=8),
    "CRLF, 4 events per packet": Script(events=EVENTS, line_end="\r\n", per_packet=4),
}


@dataclass(frozen=True)
class Measure:
    """`keys` are of figures held against the truth of the first of them. `floor` is an error too small to matter."""

    title: str
    keys: tuple[str, ...]
    digits: int = 1
    floor: float = FLOOR_MS


MEASURES = (
    Measure("Time to first token, ms", ("ttft",)),
    Measure("Time per output token, ms", ("tpot", "tpot_all"), digits=2, floor=FLOOR_MS / EVENTS),
    Measure("Gap between events, ms", ("gap",), digits=2),
    Measure("End-to-end latency, ms", ("e2e",)),
    Measure("Output tokens of a request", ("tokens",), floor=0.0),
    Measure("Output tokens/s", ("rate",), digits=0, floor=0.0),
)


@dataclass(frozen=True)
class Run:
    """One tool on one case: its figures, and what was true of the requests that they are of. None where it failed."""

    found: Figures | None
    truth: Figures


Runs = Mapping[str, Mapping[str, Run]]
"""By case and tool."""


def truth_of(told: Sequence[Told]) -> Figures:
    latencies = {
        "ttft": (one.ttft_ns for one in told),
        "tpot": (one.tpot_ns for one in told),
        "gap": (gap for one in told for gap in one.gaps_ns),
        "e2e": (one.e2e_ns for one in told),
    }
    tokens = sum(one.tokens for one in told)
    wall_ns = max(one.done_ns for one in told) - min(one.received_ns for one in told)
    return {
        **{name: _figure(values) for name, values in latencies.items()},
        "tokens": Figure(tokens / len(told)),
        "rate": Figure(tokens / wall_ns * 1e9),
    }


def _figure(values_ns: Iterable[float]) -> Figure:
    found = Distribution.of_ns(values_ns)
    assert found is not None, "the server has told of every request"
    return of_distribution(found)


def out_of_step(script: Script) -> Callable[[Asked], Script]:
    """Each request waits up to a gap longer for its first token: streams in step would meet at each event."""
    more = random.Random(0)

    def script_of(asked: Asked) -> Script:
        if asked.path != CHAT:
            return NOT_FOUND
        return replace(script, ttft_s=script.ttft_s + more.uniform(0, SPREAD_S))

    return script_of


async def measure(name: str, script: Script, requests: int, folder: Path) -> Run:
    """The measured requests are the last: a check that the server is there, and warming up, come before."""
    async with truth_server(out_of_step(script)) as server:
        try:
            found = await TOOLS[name].use(server.url, requests, folder)
        except ToolFailed as failure:
            print(f"{name} failed: {failure}", file=sys.stderr)
            return Run(None, {})
        return Run(found, truth_of([told for told in server.told if told.done_ns][-requests:]))


async def measure_all(cases: Sequence[str], tools: Sequence[str], requests: int) -> Runs:
    """One after another, each with a server of its own."""
    runs: dict[str, dict[str, Run]] = {case: {} for case in cases}
    for case in cases:
        for tool in tools:
            print(f"{case}: {tool}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                runs[case][tool] = await measure(tool, CASES[case], requests, Path(folder))
    return runs


def tables(runs: Runs) -> str:
    return "\n\n".join("\n".join(_table(measure, runs)) for measure in MEASURES)


def _table(measure: Measure, runs: Runs) -> Iterator[str]:
    columns = list(_columns(measure, runs))
    yield f"**{measure.title}**"
    yield ""
    yield _row("", "truth", *(_title(tool, key) for tool, key in columns))
    yield _row(*["---"] * (2 + len(columns)))
    for case, of_case in runs.items():
        cells = (_cell(measure, key, of_case[tool]) for tool, key in columns)
        yield _row(case, _shown_truth(measure, of_case.values()), *cells)


def _columns(measure: Measure, runs: Runs) -> Iterator[tuple[str, str]]:
    for tool in TOOLS:
        found = [of_case[tool].found or {} for of_case in runs.values() if tool in of_case]
        yield from ((tool, key) for key in measure.keys if any(key in figures for figures in found))


def _title(tool: str, key: str) -> str:
    name = NAMES.get((tool, key))
    return TOOLS[tool].title + (f", its {name}" if name else "")


def _shown_truth(measure: Measure, runs: Iterable[Run]) -> str:
    """The median of all runs': a row has one truth to read, though each tool is held to that of its own requests."""
    truths = [run.truth[measure.keys[0]] for run in runs if run.found is not None]
    if not truths:
        return ""
    tails = [truth.p99 for truth in truths if truth.p99 is not None]
    return _shown(Figure(median(truth.value for truth in truths), median(tails) if tails else None), measure.digits)


def _cell(measure: Measure, key: str, run: Run) -> str:
    """Bold where the median is off, with by how much."""
    if run.found is None:
        return "failed"
    found, truth = run.found[key], run.truth[measure.keys[0]]
    shown, error = _shown(found, measure.digits), found.value - truth.value
    if abs(error) <= max(SHARE * truth.value, measure.floor):
        return shown
    return f"**{shown}** ({error:+.{measure.digits}f})"


def _shown(figure: Figure, digits: int) -> str:
    return " / ".join(f"{part:.{digits}f}" for part in (figure.value, figure.p99) if part is not None)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--tool", action="append", choices=TOOLS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    args = parser.parse_args()
    runs = asyncio.run(measure_all(args.case or list(CASES), args.tool or list(TOOLS), args.requests))
    found = f"p50 / p99 of {args.requests} requests.\n\n{tables(runs)}\n"
    if args.output:
        args.output.write_text(found)
    print(found)


if __name__ == "__main__":
    main()
