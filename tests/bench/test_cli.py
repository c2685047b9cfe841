import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Ran

from bench.cli import app
from bench.run.result import Result

LOAD = ("--model", "fake", "--requests", "6", "--max-tokens", "2", "--deadline", "10")


def run(*arguments: str) -> Ran:
    return CliRunner().invoke(app, ["run", *arguments])


@pytest.mark.parametrize("command", [(), ("run",)])
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    explained = CliRunner().invoke(app, [*command, "--help"])
    assert explained.exit_code == 0
    assert "Usage" in explained.stdout


def test_it_is_a_part_of_the_whole_command() -> None:
    from server.cli import app as whole

    explained = CliRunner().invoke(whole, ["bench", "--help"])
    assert explained.exit_code == 0
    assert "run" in explained.stdout


def test_a_run_prints_its_table_and_leaves_its_samples_and_a_page(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "some" / "where"
    ran = run("--url", url, *LOAD, "--concurrency", "2", "--slo", "error_rate<1%", "--output", str(folder))
    assert ran.exit_code == 0, ran.stderr
    assert "fake, chat, 2 at a time" in ran.stdout
    assert "met     error_rate < 1%: 0%" in ran.stdout
    assert "6 of 6 done" in ran.stderr
    kept = Result.load(folder / "result.json")
    assert [sample.output_tokens for sample in kept.samples] == [2] * 6
    assert (folder / "report.html").stat().st_size > 0


def test_an_open_loop_is_asked_for_by_its_rate(url: str, tmp_path: Path) -> None:
    ran = run("--url", url, *LOAD, "--rate", "100", "--burstiness", "0.5", "--output", str(tmp_path))
    assert "gamma arrivals at 100 requests/s, burstiness 0.5" in ran.stdout
    assert len(Result.load(tmp_path / "result.json").samples) == 6


def test_a_missed_objective_is_exit_code_1(url: str) -> None:
    ran = run("--url", url, *LOAD, "--concurrency", "2", "--slo", "error_rate<1%,output_tokens_per_s>1000000000")
    assert ran.exit_code == 1
    assert "MISSED  output_tokens_per_s" in ran.stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "exactly one of --concurrency, --rate, --trace"),
        (("--concurrency", "2", "--rate", "1"), "exactly one of --concurrency, --rate, --trace"),
        (("--concurrency", "2", "--slo", "ttft<1s"), "not an objective: 'ttft<1s'"),
        (("--concurrency", "2", "--prompt-tokens", "many"), "not a number of tokens: 'many'"),
        (("--concurrency", "2", "--speed", "2"), "--speed goes with --trace"),
    ],
)
def test_what_cannot_be_done_as_asked_is_told_in_a_line_with_exit_code_2(
    url: str, options: tuple[str, ...], problem: str
) -> None:
    ran = run("--url", url, *LOAD, *options)
    assert ran.exit_code == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith("streamgauge bench: ") and problem in line
    assert ran.stdout == ""


def test_a_server_that_is_not_there_is_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ran = run("--url", f"http://127.0.0.1:{port}", *LOAD, "--concurrency", "2")
    assert ran.exit_code == 2
    assert "no server at" in ran.stderr


def test_a_folder_that_cannot_be_is_told_before_any_load(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run("--url", "http://127.0.0.1:1", *LOAD, "--concurrency", "2", "--output", str(tmp_path / "file" / "below"))
    assert ran.exit_code == 2
    assert "file" in ran.stderr
    assert "no server" not in ran.stderr
