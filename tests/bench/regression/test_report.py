import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.regression.measures import Arm
from bench.regression.pairs import Visit
from bench.regression.report import Comparison, shown
from bench.regression.verdicts import Outcome, verdicts
from bench.sample import RequestSample
from tests.bench.regression.visits import two_arms
from tests.support.results import completed, result


def comparison(*, slower: float = 1.0, notes: Sequence[str] = ()) -> Comparison:
    base, other = two_arms(7, slower=slower)
    return Comparison(base, other, verdicts(base, other), notes=notes)


def late(samples: Sequence[RequestSample]) -> Comparison:
    base, other = (Arm([Visit(name, 0, 0, result(samples))]) for name in "AB")
    return Comparison(base, other, verdicts(base, other))


def text(found: Comparison, width: int = 300) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(shown(found))
    return capture.get()


def rows(lines: Sequence[str], measure: str) -> list[str]:
    """Those of the table, which has an interval in every row."""
    return [line for line in lines if "[" in line and line.split()[0].rstrip(",") == measure]


def test_the_exit_code_is_one_when_anything_is_worse() -> None:
    assert comparison(slower=1.2).exit_code == 1
    assert comparison().exit_code == 0


def test_the_table_has_a_row_per_measure_with_ratio_interval_and_aa_width() -> None:
    found = comparison(slower=1.2)
    lines = text(found).splitlines()
    for verdict in found.verdicts:
        assert len(rows(lines, verdict.measure)) == 1
    [row] = [line for line in lines if "tpot_p50, ms " in line]
    [verdict] = [verdict for verdict in found.verdicts if verdict.measure == "tpot_p50"]
    assert verdict.change is not None and verdict.interval is not None and verdict.aa_width is not None
    low, high = verdict.interval
    assert f"{1 + verdict.change:.3f} [{1 + low:.3f}, {1 + high:.3f}]" in row
    assert f"{verdict.aa_width:.1%}" in row and "worse" in row


def test_a_narrow_terminal_shows_every_verdict_in_its_row() -> None:
    """At 80 columns the last one was once squeezed away."""
    found = comparison(slower=1.2)
    lines = text(found, width=80).splitlines()
    for verdict in found.verdicts:
        [row] = rows(lines, verdict.measure)
        assert verdict.outcome.value.split()[0] in row, row


def test_why_nothing_can_be_told_is_said_once_for_all_that_it_holds_for() -> None:
    found = comparison(slower=1.2)
    whys = {verdict.why for verdict in found.verdicts if verdict.why}
    lines = text(found).splitlines()
    assert whys
    for why in whys:
        [line] = [line for line in lines if line.endswith(f": {why}")]
        assert all(verdict.measure in line for verdict in found.verdicts if verdict.why == why)


def test_what_is_worse_and_what_is_not_known_is_said_in_the_end() -> None:
    worse = text(comparison(slower=1.2)).splitlines()[-1]
    assert worse.startswith("WORSE in ttft_p50, tpot_p50") and "can't tell of ttft_p99" in worse
    assert text(comparison()).splitlines()[-1].startswith("nothing is worse, within 5%")


def test_tokens_per_event_stand_beside_the_gaps() -> None:
    assert "tokens/event: A 1.00, B 1.00" in text(comparison())


def test_notes_come_first() -> None:
    assert text(comparison(notes=["NOT IN TURN: take care"])).startswith("NOT IN TURN: take care")


def test_a_late_generator_makes_a_comparison_invalid() -> None:
    found = late([completed(float(number), late_ms=500) for number in range(20)])
    assert found.exit_code == 1
    assert "INVALID A, round 1: the generator was late" in text(found)


def test_a_comparison_is_kept_as_json(tmp_path: Path) -> None:
    found = comparison(slower=1.2, notes=["in turn"])
    kept = json.loads(found.save(tmp_path / "new").read_text())
    assert kept["worse"] == found.of(Outcome.WORSE)
    assert kept["notes"] == ["in turn"]
    assert [verdict["measure"] for verdict in kept["verdicts"]] == [verdict.measure for verdict in found.verdicts]
    assert [visit["position"] for visit in kept["arms"]["B"]["visits"]] == [1, 2, 1, 2]
    assert kept["arms"]["A"]["spec"]["model"] == "tiny"
