"""The search for the step rate that a front end keeps up with, and what its arms are given."""

import asyncio
import shlex
from pathlib import Path

import pytest

from bench.frontend_limits import Limits, Point, Probed, _ended, _stamps, main, measure, parse
from bench.frontend_steps import Kept
from tests.bench.test_compare_arms import answering

ENGINE = answering('{"argv": ["--dtype", "bfloat16"], "env": {}}')


class Pretended(Limits):
    """An arm that keeps up down to the step of `limits`, without a server."""

    def __init__(self, limits: dict[str, float], output: Path, scratch: Path) -> None:
        super().__init__(parse(["--output", str(output)]), scratch)
        self.limits = limits
        self.visits: list[tuple[str, float, int, tuple[str, ...], bool]] = []

    async def visit(self, arm: str, step_ms: float, streams: int, *settings: str, probes: bool = False) -> Point:
        self.visits.append((arm, step_ms, streams, settings, probes))
        events = 100 * streams if step_ms >= self.limits[arm] else 50 * streams
        probed = Probed([1.0, 3.0], [7.0]) if probes else Probed()
        return Point(arm, step_ms, Kept(streams, 100, 2.0, events, [1_000_000, 2_000_000]), 30.0, probed)


@pytest.mark.parametrize("limit", [0.7, 3.0, 8.0, 40.0])
async def test_the_shortest_step_is_found_to_a_tenth_and_never_one_that_is_lost(limit: float, tmp_path: Path) -> None:
    limits = Pretended({"ours": limit}, tmp_path, tmp_path)
    found = await limits.keeps_up_with("ours", 64)
    assert limit <= found <= limit * 1.1
    assert len(limits.visits) <= 9


async def test_the_report_has_rates_lateness_with_its_bound_and_what_becomes_of_too_much(tmp_path: Path) -> None:
    limits = Pretended({"ours": 2.0, "stock": 8.0}, tmp_path, tmp_path)
    text = "\n".join(await measure(limits, parse(["--output", str(tmp_path)])))
    assert "ours: 500 steps/s (2.00 ms)" in text and "stock: 125 steps/s (8.00 ms)" in text
    assert "64 streams, 250 steps/s: p50 2.00 ms, p99 2.00 ms (2 ms + N × CPU per event: 3.92 ms)" in text
    assert "as it is: 3200 tokens/s, 2.00 tokens/event, /health p50 2.0 and at most 3.0 ms (2)" in text
    past = [visit for visit in limits.visits if visit[1] == 0]
    assert [len(settings) for _, _, _, settings, _ in past] == [0, 1, 1, 0] and all(visit[4] for visit in past)


def test_each_visit_has_its_own_pace_its_stamps_and_room_for_long_streams(tmp_path: Path) -> None:
    limits = Limits(parse(["--output", str(tmp_path), "--engine-command", ENGINE]), tmp_path)
    arm = limits._arm("ours", 2.5, 64, ("engine.args.stream_interval=8",), tmp_path / "stamps")
    said = shlex.join(arm.argv)
    assert "engine.args.max_num_seqs=65" in said  # with the client that is dropped
    assert "engine.args.stream_interval=8" in said and "kv_cache_memory_bytes" in said
    assert arm.env["STREAMGAUGE_NULL_STEP_MS"] == "2.5"
    assert arm.env["STREAMGAUGE_NULL_STAMPS"] == str(tmp_path / "stamps")
    (tmp_path / "stamps").write_text("30\n10\n20\n")
    assert _stamps(tmp_path / "stamps") == [10, 20, 30]


async def test_a_prober_that_failed_fails_the_visit_and_one_that_was_cancelled_does_not() -> None:
    async def failing() -> None:
        raise TimeoutError("still in /load")

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError, match="still in"):
        await _ended(task)
    running = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    running.cancel()
    await _ended(running)


def test_stock_in_our_own_environment_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path)]) == 2
    assert "project's own environment" in capsys.readouterr().err
