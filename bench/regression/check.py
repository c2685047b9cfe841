"""The whole way of `streamgauge bench compare` and `check`, from two loads to an exit code."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from bench import loop
from bench.regression import pairs, recorded, report
from bench.regression.measures import Arm
from bench.regression.pairs import Side, Visit
from bench.regression.report import Comparison
from bench.regression.verdicts import verdicts
from bench.run import load, progress
from bench.run.result import Result
from bench.run.spec import Spec

NOT_IN_TURN = (
    "NOT IN TURN: the baseline was recorded at {started}, so that whatever has changed on the machine since then "
    "counts as a change of the server. Only a run with --baseline-url, which visits both in turn, is proof."
)


async def measured(spec: Spec) -> Result:
    """A run of load with its progress on the terminal."""
    with progress.shown(Console(stderr=True)) as on_progress:
        return await load.run(spec, on_progress)


def compare(base: Side, other: Side, *, rounds: int, tolerance: float, folder: Path | None) -> int:
    """Visits both in turn; returns the exit code. Raises SpecError and OSError."""
    visits = loop.run(pairs.in_turn([base, other], rounds, measured, _keeper(folder)))
    return _conclude([base.name, other.name], visits, [_in_turn(rounds)], tolerance, folder)


def check(baseline: Result, now: Side, *, rounds: int, tolerance: float, folder: Path | None) -> int:
    """Holds a server to a recorded result, without a second server; returns the exit code.

    The server is visited twice a round, as it would be in turn, so that there is an A/A width. Raises as `compare`.
    """
    visits = loop.run(pairs.again(now, 2 * rounds, measured, _keeper(folder)))
    notes = [NOT_IN_TURN.format(started=baseline.started)]
    return _conclude(
        ["baseline", now.name], [recorded.as_visit(baseline, "baseline"), *visits], notes, tolerance, folder
    )


def concluded(names: Sequence[str], visits: Sequence[Visit], notes: Sequence[str], tolerance: float) -> Comparison:
    """The second arm of `names` against the first."""
    base, other = (Arm([visit for visit in visits if visit.arm == name]) for name in names)
    return Comparison(base, other, verdicts(base, other, tolerance=tolerance), tolerance, notes)


def _conclude(
    names: Sequence[str], visits: Sequence[Visit], notes: Sequence[str], tolerance: float, folder: Path | None
) -> int:
    comparison = concluded(names, visits, notes, tolerance)
    Console().print(report.shown(comparison))
    if folder is not None:
        Console(stderr=True).print(comparison.save(folder), soft_wrap=True)
    return comparison.exit_code


def _in_turn(rounds: int) -> str:
    return f"in turn, A B B A, {rounds} {'round' if rounds == 1 else 'rounds'}"


def _keeper(folder: Path | None) -> Callable[[Visit], None]:
    """Tells of a visit when it is over, and keeps its samples, so that an interrupted comparison leaves what it had."""
    console = Console(stderr=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)  # a mistyped one should not cost a whole run

    def keep(visit: Visit) -> None:
        summary = visit.result.summary
        done = f"{summary.completed} of {summary.requests} completed, {summary.output_tokens_per_s:.4g} tokens/s"
        console.print(f"round {visit.round + 1}, {visit.arm}: {done}", highlight=False)
        if folder is not None:
            visit.result.save(folder / f"visit-{visit.round}-{visit.position}")

    return keep
