import asyncio
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner
from typer.testing import Result as Ran

from bench.cli import app
from bench.run.result import Result
from bench.search.capacity import Search, find, wanted
from bench.search.command import exit_code, line
from tests.bench.search.simulated import Queue, Server
from tests.support.results import SPEC


def capacity(url: str, slo: str, *more: str) -> Ran:
    bounds = ("--low", "20", "--high", "20", "--seconds", "1", "--requests", "20", "--repeat", "2")
    arguments = ("--url", url, "--model", "fake", "--slo", slo, "--max-tokens", "2", "--deadline", "10", *bounds, *more)
    return CliRunner().invoke(app, ["capacity", *arguments])


def test_a_search_prints_its_runs_and_its_answer_and_leaves_all_it_saw(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "some" / "where"
    ran = capacity(url, "e2e_p50<60s", "--output", str(folder))
    assert "20 requests/s met: e2e_p50 < 60,000 ms: " in ran.stdout
    assert "More than 20 requests/s: every run up to there met e2e_p50<60s,error_rate<1%." in ran.stdout
    points = orjson.loads((folder / "capacity.json").read_bytes())["points"]
    assert [point["rate"] for point in points] == [20.0, 20.0]
    assert [len(Result.load(folder / point["folder"] / "result.json").samples) for point in points] == [20, 20]
    assert (folder / "report.html").stat().st_size > 0


def test_limits_that_are_never_met_are_told_by_the_exit_code(url: str) -> None:
    ran = capacity(url, "e2e_p50<0.000001ms")
    assert ran.exit_code == 1, ran.stderr
    assert "Less than 20 requests/s" in ran.stdout


@pytest.mark.parametrize(
    ("slo", "more", "said"),
    [
        ("fast", (), "not an objective: 'fast'"),
        ("goodput>3", (), "goodput is what it finds"),
        ("ttft_p99<1s", ("--max-tokens", "some"), "not a number of tokens"),
    ],
)
def test_what_cannot_be_searched_for_is_said_before_anything_is_asked(
    slo: str, more: tuple[str, ...], said: str
) -> None:
    ran = capacity("http://127.0.0.1:9", slo, *more)
    assert ran.exit_code == 2
    assert said in ran.stderr


def test_a_point_that_was_cut_short_says_why() -> None:
    search = Search(SPEC, wanted("ttft_p90<1s"), low=32.0, high=64.0, seconds=30.0, requests=60, rest_s=0.0)
    found = asyncio.run(find(search, Server(Queue(8, 0.5)).load, lambda _: None))
    assert exit_code(found) == 1
    assert "requests/s missed: " in line(found.points[0])
    assert "were past 1000 ms to their first token" in line(found.points[0])
