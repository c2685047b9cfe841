import asyncio
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from bench.arms import HOST, Arm, running, served_model
from bench.client import stream_request
from bench.compare_arms import CHECKOUT, clean_env
from bench.frontend_floor import Steps, framed
from bench.frontend_recording import Recording, record
from bench.kept import kept_connection
from tests.bench.bytes import DONE, chat_event, chunked, usage_event

PATH = "/v1/chat/completions"
WRITES = [*(chat_event(f"word {number}") for number in range(5)), usage_event(5), DONE]
STEP_S = 0.02


@pytest.mark.parametrize("kind", ["asgi", "protocol"])
async def test_the_floor_writes_the_recorded_bytes_at_the_pace_of_the_steps(kind: str, tmp_path: Path) -> None:
    Recording.of(WRITES, 5).save(tmp_path / "stream.json")
    replay = ("--streams", str(tmp_path / "stream.json"), "--step-ms", f"{STEP_S * 1e3:g}")
    argv = (sys.executable, "-m", "bench.frontend_floor", kind, "--port", "{port}", *replay)
    floor = Arm(kind, argv, clean_env(), CHECKOUT)
    async with running(floor, tmp_path / "log", ready_deadline_s=60, stop_deadline_s=60) as up:
        assert await served_model(up.port) == "floor"
        assert await record(up.port, PATH, b"{}", 60) == WRITES
        samples = await asyncio.gather(*(stream_request(HOST, up.port, PATH, b"{}", deadline_s=60) for _ in range(3)))
        async with kept_connection(HOST, up.port) as connection:
            samples += [await connection.send(PATH, b"{}", deadline_s=60) for _ in range(2)]
    for sample in samples:
        assert sample.ok, sample.detail
        assert (sample.output_tokens, sample.text) == (5, "".join(f"word {number}" for number in range(5)))
        # Five steps, of which the first may be nearly over, and the second shorter by what the first was late.
        assert sample.e2e_ns is not None and sample.e2e_ns >= 2.5 * STEP_S * 1e9


async def test_all_that_wait_for_a_step_are_called_at_the_same_one() -> None:
    steps = Steps(0.01)
    order: list[str] = []
    for name in "ab":
        steps.at_next(partial(order.append, name))
    await steps.next()
    assert order == ["a", "b"]


async def test_a_step_follows_on_the_last_one() -> None:
    steps, started = Steps(0.05), time.monotonic()
    for _ in range(3):
        await steps.next()
    assert time.monotonic() - started >= 0.1


async def test_whoever_stops_waiting_does_not_hold_up_the_others() -> None:
    steps = Steps(0.01)
    gone, waiting = asyncio.create_task(steps.next()), asyncio.create_task(steps.next())
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(60):
        await waiting
    assert gone.cancelled()


def test_the_frames_are_those_of_a_chunked_body() -> None:
    assert b"".join(framed(Recording.of(WRITES, 5))) == chunked(*WRITES)
    assert len(framed(Recording.of(WRITES, 5))) == 5
