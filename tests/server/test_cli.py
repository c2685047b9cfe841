import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from server import cli
from server.engine.model_store import KNOWN_MODELS


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "detect_device", lambda: "cpu")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


@pytest.mark.parametrize("command", [(), ("serve",), ("models",), ("config",), ("doctor",)])
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout


def test_known_models_are_listed_with_their_licence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path))
    result = run("models", "list")
    assert result.exit_code == 0
    for model in KNOWN_MODELS.values():
        assert model.name in result.stdout
        assert model.license in result.stdout
    assert "not pulled" in result.stdout


def test_the_folder_of_a_pulled_model_is_printed(source: str) -> None:
    result = run("models", "path", "smollm2-135m")
    assert (result.exit_code, result.stdout) == (0, f"{source}\n")


@pytest.mark.parametrize("command", ["path", "pull"])
def test_an_unknown_model_is_refused_with_the_known_ones(command: str) -> None:
    result = run("models", command, "no-such")
    assert result.exit_code == 2
    assert "no-such" in result.stderr
    assert "smollm2-135m" in result.stderr


def test_a_model_that_is_not_here_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path))
    for command in (("models", "path", "smollm2-135m"), ("serve", "smollm2-135m")):
        result = run(*command)
        assert result.exit_code == 2
        assert "streamgauge models pull smollm2-135m" in result.stderr


def test_settings_are_shown_as_yaml_that_can_be_read_back(tmp_path: Path) -> None:
    result = run("config", "show", "some/model", "--set", "http.port=1234")
    assert result.exit_code == 0
    shown = yaml.safe_load(result.stdout)
    assert shown["engine"]["model"] == "some/model"
    assert shown["http"]["port"] == 1234
    path = tmp_path / "shown.yaml"
    path.write_text(result.stdout)
    assert run("config", "show", "--config", str(path)).stdout == result.stdout


def test_settings_are_checked() -> None:
    assert run("config", "check").stdout == "ok\n"
    for command in (("config", "check"), ("config", "show"), ("serve",)):
        result = run(*command, "--set", "http.prot=1")
        assert result.exit_code == 2
        assert "http.prot" in result.stderr
        assert "Traceback" not in result.output


def test_without_a_file_the_profile_of_the_device_is_used() -> None:
    shown = yaml.safe_load(run("config", "show").stdout)
    assert shown["engine"]["args"]["enforce_eager"] is True


def test_the_engine_can_be_told_as_vllms_own_flags(source: str) -> None:
    result = run("config", "engine-command", "--set", "engine.args={max_num_seqs: 4, enforce_eager: false, x: {a: 1}}")
    told = json.loads(result.stdout)
    assert told["argv"][told["argv"].index("--max-num-seqs") :][:2] == ["--max-num-seqs", "4"]
    assert "--no-enforce-eager" in told["argv"]
    assert told["argv"][told["argv"].index("--x") + 1] == '{"a": 1}'
    assert all(isinstance(value, str) for value in told["env"].values())


def test_vllms_own_flags_leave_out_what_only_this_project_has(source: str) -> None:
    default = json.loads(run("config", "engine-command").stdout)["argv"]
    assert "--logits-processors" not in default
    setting = 'engine.args.logits_processors=["sampling.processors.top_p:SortFreeTopP","a:B","c:D"]'
    mixed = json.loads(run("config", "engine-command", "--set", setting).stdout)["argv"]
    assert mixed[mixed.index("--logits-processors") :][:3] == ["--logits-processors", "a:B", "c:D"]


def test_the_doctor_says_what_the_engine_would_run_on(source: str) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    for what in ("python", "vllm", "cores", "memory", "smollm2-135m"):
        assert what in result.stdout


@pytest.mark.parametrize("setting", ["engine.kind=scripted", "telemetry.steps=false"])
def test_steps_that_nobody_probes_cannot_be_profiled(source: str, setting: str) -> None:
    result = run("doctor", "--profile-steps", "5", "--set", setting)
    assert result.exit_code == 2
    assert "telemetry.steps=true" in result.stderr


def test_the_doctor_says_how_to_get_a_model_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_CACHE", str(tmp_path))
    result = run("doctor")
    assert result.exit_code == 0
    assert "streamgauge models pull" in " ".join(result.stdout.split())
