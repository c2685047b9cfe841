"""The whole way of `streamgauge bench capacity`, from a Search to an exit code."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import loop
from bench.extras import require
from bench.run import load, progress
from bench.run.meter import Progress
from bench.run.result import Result
from bench.run.spec import Open, Spec
from bench.search import capacity, report
from bench.search.capacity import Capacity, Point, Search


def execute(search: Search, folder: Path | None) -> int:
    """Returns the exit code; raises what `load.run` does, and OSError for what can't be written."""
    if folder is not None:
        require("plotly")
        folder.mkdir(parents=True, exist_ok=True)  # a mistyped one should not cost a whole search
    found = loop.run(capacity.find(search, shown_run, lambda so_far: _keep(so_far, folder)))
    said = [report.answer(found), *(f"- {finding.text}" for finding in report.diagnosis(found))]
    Console().print("", *said, sep="\n", markup=False, highlight=False, soft_wrap=True)
    if folder is not None:
        Console(stderr=True).print(report.save_json(folder, found), report.save_html(folder, found), soft_wrap=True)
    return exit_code(found)


def exit_code(found: Capacity) -> int:
    """1 when no rate met the objectives, and when the runs at the edge are not the server's alone."""
    return 0 if found.edge is not None and not found.edge.faults else 1


async def shown_run(spec: Spec, on_progress: Callable[[Progress], None]) -> Result:
    """A run of load with its progress on the terminal. Raises what `load.run` and `on_progress` raise."""
    console = Console(stderr=True)
    rate = f"{spec.load.rate:g} requests/s" if isinstance(spec.load, Open) else "closed loop, for a scale"
    console.print(f"{rate}, {spec.requests} requests after {spec.warmup}", highlight=False)
    with progress.shown(console) as show:

        def both(state: Progress) -> None:
            show(state)
            on_progress(state)

        return await load.run(spec, both)


def _keep(found: Capacity, folder: Path | None) -> None:
    point = found.points[-1]
    Console().print(line(point), markup=False, highlight=False, soft_wrap=True)
    if folder is None:
        return
    if point.result is not None:
        point.result.save(folder / report.folder_of(len(found.points) - 1, point))
    report.save_json(folder, found)


def line(point: Point) -> str:
    """What came of a point."""
    trial = point.trial
    why = trial.stopped or ", ".join(map(str, point.verdicts))
    return f"{trial.rate:g} requests/s {'met' if trial.met else 'missed'}: {why}"
