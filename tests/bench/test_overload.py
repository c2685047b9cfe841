import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from bench.overload import main, parse, run_settings
from bench.overload_run import visiting_order
from bench.procfs import alive, descendants
from tests.support.waiting import until

FAKE = "{python} -m tests.bench.fake_server {port}"
QUICK = (
    "--arms",
    "ours",
    "--capacity",
    "20",
    "--rates",
    "0.5,2",
    "--seconds",
    "0.5",
    "--arrivals",
    "5",
    "--warmup",
    "0.1",
)


def run(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.setattr(sys, "argv", ["overload", *argv])
    return main()


def test_arms_take_turns_load_by_load_and_in_either_direction() -> None:
    assert visiting_order(["a", "b", "c"], loads=2, rounds=1) == [
        *[(0, 0, arm) for arm in "abc"],
        *[(0, 1, arm) for arm in "cba"],
    ]
    assert [arm for _, _, arm in visiting_order(["a", "b"], loads=1, rounds=2)] == ["a", "b", "b", "a"]


def test_a_run_leaves_its_samples_and_its_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, "--output", str(out), "--ours-command", FAKE, *QUICK) == 0
    result = json.loads((out / "result.json").read_text())
    assert [(found["arm"], found["factor"]) for found in result["points"]] == [("ours", 0.5), ("ours", 2.0)]
    for found in result["points"]:
        assert found["figures"]["scheduled"] == len(found["requests"]) >= 5
        assert found["figures"]["fates"]["good"] == len(found["requests"])
        assert found["cost"]["api_ns"] > 0
    assert result["settings"]["seed"] == 1 and result["objectives"] == {"ttft_s": 1.0, "tpot_s": 0.2}
    assert "admission.slo.ttft_p99_ms=1000" in result["arms"]["ours"]["argv"]
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert "2x" in capsys.readouterr().out


def test_capacity_is_measured_where_it_is_not_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load = ("--rates", "0.01", "--seconds", "0.2", "--arrivals", "2", "--warmup", "0")
    loop = ("--concurrencies", "1,2", "--capacity-seconds", "0.3")
    out = tmp_path / "out"
    assert run(monkeypatch, "--arms", "ours", "--output", str(out), "--ours-command", FAKE, *load, *loop) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["capacity"]["source"] == "ours" and result["capacity"]["requests_per_s"] > 0
    assert result["points"][0]["rate"] == 0.01 * result["capacity"]["requests_per_s"]


async def test_a_run_that_is_told_to_stop_stops_its_server_and_reports_what_it_has(tmp_path: Path) -> None:
    load = (
        "--arms",
        "ours",
        "--capacity",
        "20",
        "--rates",
        "1",
        "--seconds",
        "600",
        "--arrivals",
        "5",
        "--warmup",
        "0",
    )
    argv = ("-m", "bench.overload", "--output", str(tmp_path), "--ours-command", FAKE, *load)
    log = tmp_path / "round0-1x-ours.log"
    bench = await asyncio.create_subprocess_exec(sys.executable, *argv, stdout=PIPE, stderr=DEVNULL)
    async with asyncio.timeout(100):
        await until(lambda: log.exists() and descendants(bench.pid), seconds=60)
        [server] = descendants(bench.pid)
        bench.terminate()
        printed, _ = await bench.communicate()
    assert bench.returncode == 1 and b"interrupted" in printed
    assert not alive(server)


def test_the_step_can_be_run_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load = ("--rates", "", "--capacity", "20", "--step", "--step-seconds", "0.5")
    out = tmp_path / "out"
    assert run(monkeypatch, "--arms", "ours", "--output", str(out), "--ours-command", FAKE, *load) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["points"] == [] and result["step"]["rates"] == [10.0, 40.0, 10.0]
    assert result["step"]["readings"] and result["step"]["point"]["requests"]


def test_an_arm_that_fails_is_reported_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, "--output", str(out), "--ours-command", f"{FAKE} dies", *QUICK) == 1
    result = json.loads((out / "result.json").read_text())
    assert len(result["errors"]) == 2 and result["points"] == []


def test_an_unknown_arm_and_lengths_that_are_none_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "--output", str(tmp_path), "--arms", "ours,theirs") == 2
    assert "theirs" in capsys.readouterr().err
    assert run(monkeypatch, "--output", str(tmp_path), "--prompt-tokens", "16") == 2
    assert "LEAST,MEDIAN,MOST" in capsys.readouterr().err


def test_the_defaults_are_the_published_measurement() -> None:
    settings = run_settings(parse(["--output", "x"]))
    assert settings.factors == [0.5, 0.8, 1, 1.5, 2, 3]
    assert settings.seconds >= 120 and settings.arrivals >= 300
    assert (settings.workload.prompt.least, settings.workload.prompt.most) == (16, 1024)
    assert settings.refusals is settings.fairness is settings.step_seconds is None
