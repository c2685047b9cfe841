from pathlib import Path

import pytest

from bench import compare_settings
from bench.compare_stock import visiting_order


def test_the_changed_arm_is_ours_with_the_settings(tmp_path: Path) -> None:
    argv = ["--set", "telemetry.steps=false", "--set", "http.port=1", "--model", "m", "--out", str(tmp_path)]
    ours, changed = compare_settings.arms(compare_settings.parse(argv))
    assert (ours.name, changed.name) == ("ours", "changed")
    assert changed.argv == (*ours.argv, "--set", "telemetry.steps=false", "--set", "http.port=1")
    assert "m" in ours.argv
    assert (changed.env, changed.cwd) == (ours.env, ours.cwd)
    assert [arm.name for _, _, arm in visiting_order([ours, changed], 1)] == ["ours", "changed", "changed", "ours"]


def test_there_is_nothing_to_compare_without_a_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare_settings.parse(["--out", str(tmp_path)])
    assert "--set" in capsys.readouterr().err
