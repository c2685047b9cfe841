import json
import shlex
from pathlib import Path

import pytest

from bench import frontend
from bench.compare_arms import NULL_EXECUTOR, ComparisonError, clean_env
from bench.frontend import (
    arm_names,
    arm_options,
    at_streams,
    entry_points,
    frontend_arms,
    main,
    parse,
    settings_of,
)
from bench.frontend_kinds import CALL
from bench.frontend_recording import Recording
from tests.bench.test_arms import fake
from tests.bench.test_compare_arms import answering

FAKE = "{python} -m tests.bench.fake_server {port}"
ENGINE = answering('{"argv": ["--dtype", "bfloat16"], "env": {"OMP": "2"}}')


def test_a_floor_without_ours_has_nothing_to_write() -> None:
    assert arm_names("ours,asgi,stock") == ["ours", "asgi", "stock"]
    assert arm_names("stock,stock-nostats") == ["stock", "stock-nostats"]
    for text in ("asgi,ours", "stock,protocol"):
        with pytest.raises(ComparisonError, match="ours comes first"):
            arm_names(text)
    with pytest.raises(ComparisonError, match="theirs"):
        arm_names("ours,theirs")


def test_all_engines_run_no_model_in_one_batch_at_the_same_pace(tmp_path: Path) -> None:
    given = ["--stock-python", "/stock/bin/python", "--engine-command", ENGINE, "--streams", "4,300", "--step-ms", "5"]
    args = parse(["--output", str(tmp_path), *given])
    names = arm_names(args.arms)
    arms = dict(zip(names, frontend_arms(arm_options(args), names, tmp_path, args), strict=True))
    assert [arm.name for arm in arms.values()] == names == ["ours", "stock", "stock-nostats", "asgi", "protocol"]
    settings = shlex.join(arms["ours"].argv)
    assert f"--set engine.args.distributed_executor_backend={NULL_EXECUTOR}" in settings
    assert "--set engine.args.max_num_seqs=300" in settings
    stock = arms["stock"]
    assert stock.argv[0] == "/stock/bin/python" and NULL_EXECUTOR in stock.argv and "bfloat16" in stock.argv
    assert stock.env["OMP"] == "2"
    assert arms["stock-nostats"].argv == (*stock.argv, "--disable-log-stats")
    assert {arms[name].env["STREAMGAUGE_NULL_STEP_MS"] for name in ("ours", "stock", "stock-nostats")} == {"5"}
    assert arms["asgi"].argv[-4:] == ("--streams", str(tmp_path / "stream.json"), "--step-ms", "5")


def test_a_kind_of_request_is_what_every_arm_is_asked_for_and_set_up_for(tmp_path: Path) -> None:
    given = ["--stock-python", "/stock/bin/python", "--engine-command", ENGINE, "--kind", "tool"]
    args = parse(["--output", str(tmp_path), *given])
    names = ["ours", "stock"]
    arms = dict(zip(names, frontend_arms(arm_options(args), names, tmp_path, args), strict=True))
    assert "--set chat.tool_parser=hermes" in shlex.join(arms["ours"].argv)
    assert {"--enable-auto-tool-choice", "--tool-call-parser=hermes"} <= set(arms["stock"].argv)
    assert {arm.env["STREAMGAUGE_NULL_TEXT"] for arm in arms.values()} == {CALL}


def test_a_request_of_four_answers_counts_as_four_streams(tmp_path: Path) -> None:
    args = parse(["--output", str(tmp_path), "--kind", "n4"])
    load = at_streams(args, 64)
    assert (load.concurrency, load.requests) == (16, 32)
    assert at_streams(parse(["--output", str(tmp_path)]), 64).concurrency == 64


def test_the_settings_of_an_arm_are_its_command_and_what_its_environment_has_of_its_own() -> None:
    arm = fake()
    assert settings_of(arm) == shlex.join(arm.argv)
    own = type(arm)(arm.name, ("serve", "a b"), {**clean_env(), "PACE": "5"}, arm.cwd)
    assert settings_of(own) == "PACE=5 serve 'a b'"


def test_front_ends_are_visited_in_turn_at_each_number_of_streams(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--streams", "2,3", "--rounds", "1", "--max-tokens", "2", "--step-ms", "5", "--answers", "1"]
    arms = ["--arms", "ours,asgi,protocol", "--ours-command", FAKE]
    code = main(["--output", str(tmp_path), *load, *arms])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert [len(step) for step in Recording.load(tmp_path / "stream.json").steps] == [1, 3]
    for streams in (2, 3):
        raw = json.loads((tmp_path / f"streams-{streams}" / "result.json").read_text())
        assert [visit["arm"] for visit in raw["visits"]] == ["ours", "asgi", "protocol", "protocol", "asgi", "ours"]
        assert {visit["summary"]["completed"] for visit in raw["visits"]} == {streams}
        assert f"{streams} streams, one step per 5 ms" in printed.out
    figures = json.loads((tmp_path / "frontend.json").read_text())["figures"]
    assert {found["tokens/event"]["value"] for found in figures["3"].values()} == {1.0}
    assert all(found["API process, CPU µs/token"]["value"] > 0 for found in figures["3"].values())
    assert "asgi: " in printed.out and "bench.frontend_floor asgi" in printed.out


def test_an_arm_that_fails_is_reported_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = ["--streams", "2", "--rounds", "1", "--max-tokens", "2", "--answers", "1"]
    code = main(["--output", str(tmp_path), *load, "--arms", "ours", "--ours-command", f"{FAKE} dies"])
    assert code == 1
    assert len(json.loads((tmp_path / "frontend.json").read_text())["errors"]) == 2
    assert "no such model" in capsys.readouterr().err


def test_stock_shows_its_entry_points_and_is_refused_in_our_own_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["--output", str(out), "--arms", "ours,stock", "--engine-command", ENGINE]) == 2
    printed = capsys.readouterr()
    assert "vllm.general_plugins: streamgauge" in printed.out
    assert "--allow-same-env" in printed.err
    assert not out.exists()
    assert frontend.__doc__ and "--stock-python" in frontend.__doc__


def test_an_environment_that_can_not_be_asked_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such module' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ComparisonError, match="no such module"):
        entry_points(str(broken), tmp_path)
