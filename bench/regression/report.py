"""What a comparison came to: a table for people, JSON for programs, and the exit code."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.regression.measures import Arm
from bench.regression.verdicts import TOLERANCE, Outcome, Verdict

FORMAT = 1
RATE = "1/s"  # which a measure's name says already
VERDICT_WIDTH = 10
STYLES = {Outcome.WORSE: "bold red", Outcome.BETTER: "green", Outcome.SAME: "", Outcome.UNKNOWN: "yellow"}


@dataclass(frozen=True)
class Comparison:
    """`other` against `base`. `notes` are what a reader has to know before the figures."""

    base: Arm
    other: Arm
    verdicts: Sequence[Verdict]
    tolerance: float = TOLERANCE
    notes: Sequence[str] = field(default=())

    @property
    def arms(self) -> tuple[Arm, Arm]:
        return self.base, self.other

    @property
    def faults(self) -> list[str]:
        """Why the figures are not the servers' alone; empty for a valid comparison."""
        visits = [visit for arm in self.arms for visit in arm.visits]
        return [f"{visit.arm}, round {visit.round + 1}: {why}" for visit in visits for why in visit.result.faults]

    def of(self, outcome: Outcome) -> list[str]:
        return [verdict.measure for verdict in self.verdicts if verdict.outcome is outcome]

    @property
    def exit_code(self) -> int:
        """1 where anything is worse, or the comparison is not valid."""
        return 1 if self.of(Outcome.WORSE) or self.faults else 0

    def as_dict(self) -> dict[str, object]:
        """`arms` have each visit's summary; its samples are in a result of its own."""
        return {
            "format": FORMAT,
            "worse": self.of(Outcome.WORSE),
            "tolerance": self.tolerance,
            "notes": list(self.notes),
            "faults": self.faults,
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
            "arms": {_name(arm): _arm(arm) for arm in self.arms},
        }

    def save(self, folder: Path) -> Path:
        """As `comparison.json` in `folder`; raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "comparison.json"
        path.write_bytes(orjson.dumps(self.as_dict(), option=orjson.OPT_INDENT_2, default=str))
        return path


def _name(arm: Arm) -> str:
    return arm.visits[0].arm


def _arm(arm: Arm) -> dict[str, object]:
    first = arm.visits[0].result
    return {
        "spec": first.spec,
        "facts": first.facts,
        "visits": [
            {
                "round": visit.round,
                "position": visit.position,
                "started": visit.result.started,
                "cpu_ns": visit.cpu_ns,
                "summary": visit.result.summary.as_dict(),
            }
            for visit in arm.visits
        ],
    }


def shown(comparison: Comparison) -> Group:
    """For a terminal: the notes, the table, and what follows."""
    return Group(*_parts(comparison))


def _parts(comparison: Comparison) -> Iterator[RenderableType]:
    for note in comparison.notes:
        yield Text(note)
    yield _table(comparison)
    yield Text(f"tokens/event: {', '.join(f'{_name(arm)} {_tokens_per_event(arm)}' for arm in comparison.arms)}")
    for reason in _reasons(comparison.verdicts):
        yield Text(reason, "dim")
    for fault in comparison.faults:
        yield Text.assemble(("INVALID ", "bold red"), fault)
    yield _conclusion(comparison)


def _table(comparison: Comparison) -> Table:
    base, other = map(_name, comparison.arms)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("measure", no_wrap=True)
    for heading in (base, other, f"{other} / {base} [95 %]", "A/A"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True, min_width=VERDICT_WIDTH)  # also where a terminal is narrow
    for verdict in comparison.verdicts:
        table.add_row(
            verdict.measure if verdict.unit == RATE else f"{verdict.measure}, {verdict.unit}",
            _number(verdict.base),
            _number(verdict.other),
            _change(verdict),
            _aa_width(verdict),
            _outcome(verdict),
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _change(verdict: Verdict) -> str:
    if verdict.change is None or verdict.interval is None:
        return "-"
    low, high = verdict.interval
    if verdict.as_difference:
        return f"{verdict.change:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"{1 + verdict.change:.3f} [{1 + low:.3f}, {1 + high:.3f}]"


def _aa_width(verdict: Verdict) -> str:
    if verdict.aa_width is None:
        return "-"
    return f"{verdict.aa_width:.2f}" if verdict.as_difference else f"{verdict.aa_width:.1%}"


def _outcome(verdict: Verdict) -> Text:
    return Text(verdict.outcome.value, STYLES[verdict.outcome])


def _reasons(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Each with the measures that it holds for: beside every one of them it would make the table wide."""
    for why in dict.fromkeys(verdict.why for verdict in verdicts if verdict.why):
        yield f"{', '.join(verdict.measure for verdict in verdicts if verdict.why == why)}: {why}"


def _tokens_per_event(arm: Arm) -> str:
    done = [sample for sample in arm.samples if sample.ok]
    events = sum(sample.generated_events for sample in done)
    return f"{sum(sample.output_tokens or 0 for sample in done) / events:.2f}" if events else "-"


def _conclusion(comparison: Comparison) -> Text:
    worse, unknown = comparison.of(Outcome.WORSE), comparison.of(Outcome.UNKNOWN)
    unclear = f"; can't tell of {', '.join(unknown)}" if unknown else ""
    if worse:
        return Text(f"WORSE in {', '.join(worse)}{unclear}", "bold red")
    return Text(f"nothing is worse, within {comparison.tolerance:.0%}{unclear}", "yellow" if unknown else "green")
