"""A run of load from its Spec to its exit code: progress, table, files."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import loop
from bench.extras import require
from bench.run import figures, load, objectives, progress, table
from bench.run.objectives import Objectives, Verdict
from bench.run.result import Result
from bench.run.spec import Spec


def execute(spec: Spec, slo: str | None, folder: Path | None) -> int:
    """Returns the exit code; raises what `load.run` does, and OSError for what can't be written."""
    wanted = None if slo is None else objectives.parse(slo)
    if folder is not None:
        require("plotly")
        folder.mkdir(parents=True, exist_ok=True)  # a mistyped one should not cost a whole run
    with progress.shown(Console(stderr=True)) as on_progress:
        result = loop.run(load.run(spec, on_progress))
    verdicts = wanted.judge(result) if wanted else []
    Console().print(table.tables(result, verdicts))
    if folder is not None:
        _write(folder, result, wanted)
    return exit_code(result, verdicts)


def exit_code(result: Result, verdicts: Sequence[Verdict]) -> int:
    """1 for a missed objective and for a faulty run."""
    return 0 if not figures.faults(result) and all(verdict.met for verdict in verdicts) else 1


def _write(folder: Path, result: Result, wanted: Objectives | None) -> None:
    from bench.run import report  # plotly takes a second to import

    written = result.save(folder), report.save(folder, result, wanted)
    Console(stderr=True).print(*written, soft_wrap=True)
