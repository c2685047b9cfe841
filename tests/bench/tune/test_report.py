from pathlib import Path

import orjson
import pytest

from bench.tune import report
from bench.tune.plots import plots, values_by_path
from bench.tune.search import Record
from tests.bench.tune.records import BETTER, lost, won
from tests.bench.tune.simulated import SEQUENCES, plan, small_space

SPACE = small_space({})
STARTED = "2026-11-30T12:00:00+00:00"


@pytest.mark.parametrize(
    ("record", "begins", "code"),
    [
        (won(), "Better: max_num_seqs=128: 1.90 times", 0),
        (lost(6), "None is better than the settings as they are", 0),
        (lost(5), "Insufficient evidence, which is not that none is better", 1),
        (Record(plan()), "Insufficient evidence", 1),
    ],
)
def test_the_answer_and_the_exit_code_tell_the_verdicts_apart(record: Record, begins: str, code: int) -> None:
    assert report.answer(record).startswith(begins)
    assert f"{len(record.pairings)} candidates were paired" in report.answer(record)
    assert report.exit_code(record) == code


def test_the_answer_tells_both_edges_since_goodput_past_them_says_nothing_of_them() -> None:
    assert "Its own edge is 4 requests/s, the incumbent's 2." in report.answer(won())
    one_edge = won()
    del one_edge.edges[1]
    assert "edge" not in report.answer(one_edge)


def test_the_json_has_every_trial_and_pairing_and_what_was_changed(tmp_path: Path) -> None:
    found = orjson.loads(report.save_json(tmp_path, won(), SPACE, STARTED).read_bytes())
    assert found["changes"] == BETTER and found["verdict"] == "a better setting was found"
    assert [trial["score"] for trial in found["trials"]] == [0.5, 0.0, 0.9, 0.95]
    assert found["trials"][1]["error"] == "exited with <1>"
    assert [pairing["won"] for pairing in found["pairings"]] == [True, False]
    assert [visit["good"] for visit in found["pairings"][0]["rounds"][1]["other"]] == [95, 97]
    assert [edge["rate"] for edge in found["edges"]] == [2.0, 4.0]
    assert {knob["restart"] for knob in found["knobs"]} == {"engine", "server"}
    assert set(found["faults"]) == {"pairing 1: the generator was late", "pairing 2: the generator was late"}


def test_the_default_is_kept_without_a_winner(tmp_path: Path) -> None:
    assert orjson.loads(report.save_json(tmp_path, lost(6), SPACE, STARTED).read_bytes())["changes"] == {}


def test_the_page_needs_nothing_from_elsewhere_and_shows_all(tmp_path: Path) -> None:
    page = report.save_html(tmp_path, won(), SPACE, STARTED).read_text()
    body = page.partition("<body>")[2]
    assert "Better: max_num_seqs=128" in body and "✓ wins twice" in body
    assert "exited with &lt;1&gt;" in body and "exited with <1>" not in body
    assert "Not the server alone: pairing 1: the generator was late" in body
    assert 'src="http' not in page
    assert body.count("plotly-graph-div") == 3


def test_a_search_that_found_nothing_has_a_page_all_the_same() -> None:
    assert "Insufficient evidence" in report.html(Record(plan()), SPACE, STARTED)
    assert list(plots(Record(plan()))) == []


def test_scores_are_sorted_by_what_a_setting_was_changed_to() -> None:
    scores = values_by_path(won())
    assert scores[SEQUENCES] == [("as it is", 0.5), ("128", 0.9), ("128", 0.95)]
    assert "admission.max_wait" not in scores  # its server did not come up
