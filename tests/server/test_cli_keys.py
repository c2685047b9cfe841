"""`streamgauge keys`, and what `serve` says of keys it cannot use."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from server import cli
from server.ingress import key_file
from server.ingress.key import Limits, Scope


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "detect_device", lambda: "cpu")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


def test_a_new_key_is_all_of_standard_output(path: Path) -> None:
    result = run("keys", "add", "alice", "--file", str(path))
    assert result.exit_code == 0
    secret = result.stdout.removesuffix("\n")
    (entry,) = key_file.read(path)
    assert entry.sha256 == sha256(secret.encode()).hexdigest()
    assert entry.key.scopes == {Scope.INFER}
    assert str(path) in result.stderr
    assert secret not in result.stderr


def test_every_option_of_a_key_is_kept_and_listed(path: Path) -> None:
    options = ["--scope", "infer", "--scope", "metrics", "--scope", "infer", "--priority", "low", "--timeout", "2.5"]
    options += ["--requests-per-minute", "60", "--tokens-per-minute", "9000", "--concurrent", "4"]
    assert run("keys", "add", "alice", *options, "--file", str(path)).exit_code == 0
    assert run("keys", "add", "bob", "--file", str(path)).exit_code == 0
    alice, bob = (entry.key for entry in key_file.read(path))
    assert alice.scopes == {Scope.INFER, Scope.METRICS}
    assert (alice.timeout, alice.limits) == (2.5, Limits(60, 9000, 4))
    listed = run("keys", "list", "--file", str(path))
    first, second = (line.split("\t") for line in listed.stdout.splitlines())
    limits = "timeout=2.5 requests_per_minute=60 tokens_per_minute=9000 concurrent_requests=4"
    assert first[:4] == ["alice", "infer,metrics", "low", limits]
    assert second[:4] == ["bob", "infer", "normal", "-"]
    assert not any(key.digest in listed.output for key in (alice, bob))


def test_a_key_is_revoked_by_its_name(path: Path) -> None:
    for name in ("alice", "bob"):
        run("keys", "add", name, "--file", str(path))
    result = run("keys", "revoke", "alice", "--file", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert [entry.name for entry in key_file.read(path)] == ["bob"]


def test_the_file_is_the_settings_own(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"keys:\n  file: {path}\n")
    assert run("keys", "add", "alice", "--config", str(settings)).exit_code == 0
    monkeypatch.setenv("STREAMGAUGE_KEYS__FILE", str(path))
    assert run("keys", "list").stdout.startswith("alice\t")
    other = tmp_path / "other.json"
    assert run("keys", "add", "bob", "--file", str(other)).exit_code == 0
    assert [entry.name for entry in key_file.read(other)] == ["bob"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "alice"), "the name `alice` is taken"),
        (("add", "a b"), "name"),
        (("add", "bob", "--timeout", "0"), "timeout"),
        (("add", "bob", "--timeout", "nan"), "timeout"),
        (("add", "bob", "--concurrent", "0"), "concurrent"),
        (("add", "bob", "--scope", "root"), "root"),
        (("revoke", "bob"), "there is no key `bob`"),
    ],
)
def test_what_cannot_be_done_changes_nothing(path: Path, arguments: tuple[str, ...], told: str) -> None:
    run("keys", "add", "alice", "--file", str(path))
    before = path.read_bytes()
    result = run("keys", *arguments, "--file", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", [("add", "alice"), ("list",), ("revoke", "alice")])
def test_without_any_file_a_command_says_so(command: tuple[str, ...]) -> None:
    result = run("keys", *command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "keys.file" in result.stderr


def test_two_commands_at_once_both_count(path: Path) -> None:
    add = [sys.executable, "-m", "server", "keys", "add", "--file", str(path)]
    running = [subprocess.Popen([*add, name], stdout=subprocess.PIPE, text=True) for name in ("alice", "bob")]
    secrets = [process.communicate(timeout=100)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert {entry.sha256 for entry in key_file.read(path)} == {sha256(key.encode()).hexdigest() for key in secrets}


def refused_start(*options: str) -> str:
    """What a process that cannot serve tells the operator. Not within this one: it redirects the log."""
    command = [sys.executable, "-m", "server", "serve", "--set", "engine.kind=scripted", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    return result.stderr


def test_other_machines_are_not_served_without_keys() -> None:
    assert "--insecure" in refused_start("--host", "0.0.0.0")


def test_keys_that_cannot_be_used_end_the_start(path: Path) -> None:
    entry = {"name": "alice", "sha256": "a" * 64, "scopes": ["everything"], "created": "2026-01-31"}
    path.write_text(json.dumps({"version": 1, "keys": [entry]}))
    told = refused_start("--set", f"keys.file={path}")
    assert f"{path}: keys.0.scopes.0" in told
    assert "a" * 64 not in told
    assert "keys.api_key" in refused_start("--api-key", "two words")
