"""The commands against a real server. So few requests that no latency can decide anything."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.arms import HOST, free_port
from bench.cli import app
from bench.run.spec import Closed
from tests.support.results import SPEC, completed, result

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    """Address and process id of one that answers with two tokens at once."""
    port = free_port()
    argv = [sys.executable, "-m", "tests.bench.fake_server", str(port)]
    process = subprocess.Popen(argv, cwd=CHECKOUT, env={"PATH": os.environ["PATH"]})
    try:
        until_it_listens(port)
        yield f"http://{HOST}:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((HOST, port)).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def bench(*words: object) -> tuple[int, str]:
    """Exit code and everything it printed."""
    found = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    return found.exit_code, found.output


def compare(url_a: str, url_b: str, requests: int, *more: object) -> tuple[int, str]:
    load = ("--model", "fake", "--concurrency", 2, "--requests", requests, "--max-tokens", 2, "--warmup", 1)
    return bench("compare", url_a, url_b, *load, "--rounds", 1, *more)


def nothing_worse(code: int, output: str, folder: Path) -> dict[str, Any]:
    """The kept comparison. On a busy machine so short a run may be found invalid, which is 1 as well."""
    kept: dict[str, Any] = json.loads((folder / "comparison.json").read_text())
    assert kept["worse"] == [] and code == (1 if kept["faults"] else 0), output
    return kept


def test_a_server_is_compared_with_itself(server: tuple[str, int], tmp_path: Path) -> None:
    url, pid = server
    code, output = compare(url, url, 2, "--pid-a", pid, "--pid-b", pid, "--output", tmp_path)
    kept = nothing_worse(code, output, tmp_path)
    assert "in turn, A B B A, 1 round" in output and "NOT IN TURN" not in output
    assert {verdict["outcome"] for verdict in kept["verdicts"]} == {"can't tell"}
    [cpu] = [verdict for verdict in kept["verdicts"] if verdict["measure"] == "cpu_us_per_token"]
    assert cpu["base"] > 0 and cpu["other"] > 0
    assert sorted(path.name for path in tmp_path.glob("visit-*")) == [f"visit-0-{place}" for place in range(4)]


def test_a_server_that_is_not_there_is_named(server: tuple[str, int]) -> None:
    port = free_port()
    code, output = compare(server[0], f"http://{HOST}:{port}", 2)
    assert code == 2 and str(port) in output


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    spec = replace(SPEC, model="fake", load=Closed(2), requests=2)
    return result([completed(), completed()], spec=spec, started="2026-01-02T03:04:05+00:00").save(tmp_path)


def test_against_a_record_alone_it_says_that_this_is_no_proof(
    server: tuple[str, int], baseline: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, output = bench("check", "--baseline", baseline, "--url", server[0], "--rounds", 1, "--output", out)
    assert len(nothing_worse(code, output, out)["arms"]["now"]["visits"]) == 2
    assert "NOT IN TURN: the baseline was recorded at 2026-01-02T03:04:05+00:00" in output


def test_with_the_baselines_server_both_are_visited_in_turn(
    server: tuple[str, int], baseline: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    urls = ("--url", server[0], "--baseline-url", server[0])
    code, output = bench("check", "--baseline", baseline, *urls, "--rounds", 1, "--output", out)
    arms = nothing_worse(code, output, out)["arms"]
    assert "NOT IN TURN" not in output
    places = {name: [visit["position"] for visit in arm["visits"]] for name, arm in arms.items()}
    assert places == {"baseline": [0, 3], "now": [1, 2]}


def test_what_is_no_result_can_not_be_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    code, output = bench("check", "--baseline", tmp_path, "--url", SPEC.url)
    assert code == 2 and "can't be read as a result" in output
