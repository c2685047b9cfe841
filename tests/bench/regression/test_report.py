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


def text(found: Comparison) -> str:
    console = Console(width=300, color_system=None)
    with console.capture() as capture:
        console.print(shown(found))
    return capture.get()


def test_the_exit_code_is_one_when_anything_is_worse() -> None:
    assert comparison(slower=1.2).exit_code == 1
    assert comparison().exit_code == 0


def test_the_table_has_a_row_per_measure_with_ratio_interval_and_aa_width() -> None:
    found = comparison(slower=1.2)
    lines = text(found).splitlines()
    for verdict in found.verdicts:
        assert sum(line.split()[1] == verdict.measure for line in lines if len(line.split()) > 1) == 1
    [row] = [line for line in lines if " tpot_p50 " in line]
    [verdict] = [verdict for verdict in found.verdicts if verdict.measure == "tpot_p50"]
    assert verdict.change is not None and verdict.interval is not None and verdict.aa_width is not None
    low, high = verdict.interval
    assert f"{1 + verdict.change:.3f} [{1 + low:.3f}, {1 + high:.3f}]" in row
    assert f"{verdict.aa_width:.1%}" in row and "worse" in row


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
