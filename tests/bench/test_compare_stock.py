import json
import sys
from pathlib import Path

import pytest

from bench import compare_stock
from bench.compare_arms import ComparisonError
from bench.compare_stock import arm_names, main, visiting_order
from tests.bench.test_arms import fake

FAKE = "{python} -m tests.bench.fake_server {port}"


def test_arms_are_visited_there_and_back_in_every_round() -> None:
    arms = [fake(), fake("b"), fake("c")]
    order = visiting_order(arms, 2)
    a, b, c = arms
    assert [arm for _, _, arm in order] == [a, b, c, c, b, a] * 2
    assert [(turn, place) for turn, place, _ in order] == [(turn, place) for turn in (0, 1) for place in range(6)]


def test_an_unknown_arm_is_refused() -> None:
    assert arm_names("stock,ours") == ["stock", "ours"]
    with pytest.raises(ComparisonError, match="theirs"):
        arm_names("ours,theirs")


def run(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.setattr(sys, "argv", ["compare_stock", *argv])
    return main()


def test_a_whole_comparison_leaves_its_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    load = ["--requests", "6", "--warmup", "2", "--concurrency", "2", "--rounds", "1"]
    assert run(monkeypatch, "--arms", "ours", "--ours-command", FAKE, "--out", str(tmp_path / "out"), *load) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [visit["arm"] for visit in result["visits"]] == ["ours", "ours"]
    assert {visit["summary"]["output_tokens"] for visit in result["visits"]} == {12}
    assert result["load"]["requests"] == 6 and result["machine"]["cores"] >= 1
    assert all(visit["raw"]["api_cpu_ns"] > 0 for visit in result["visits"])
    assert "output_tokens_per_s" in capsys.readouterr().out


def test_an_arm_that_fails_is_reported_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, "--arms", "ours", "--rounds", "1", "--ours-command", f"{FAKE} dies", "--out", str(out)) == 1
    result = json.loads((out / "result.json").read_text())
    assert len(result["errors"]) == 2 and result["visits"] == []


def test_our_own_interpreter_is_not_taken_for_stock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "--arms", "ours,stock", "--out", str(tmp_path / "out")) == 2
    assert "--allow-same-env" in capsys.readouterr().err
    assert compare_stock.__doc__ and "--stock-python" in compare_stock.__doc__
