import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from bench.arms import Arm, ArmError, http_status, running, served_model
from bench.procfs import alive, descendants

CHECKOUT = Path(__file__).resolve().parents[2]


def fake(*flags: str) -> Arm:
    argv = (sys.executable, "-m", "tests.bench.fake_server", "{port}", *flags)
    return Arm("fake", argv, {"PATH": os.environ["PATH"]}, CHECKOUT)


async def test_an_arm_is_healthy_while_it_is_used_and_gone_afterwards(tmp_path: Path) -> None:
    async with running(fake(), tmp_path / "log", ready_deadline_s=60, stop_deadline_s=60) as server:
        assert await http_status(server.port, "/health") == 200
        assert await served_model(server.port) == "fake"
        assert os.getpgid(server.pid) == server.pid != os.getpgid(0)
    assert not alive(server.pid)
    assert await http_status(server.port, "/health") is None


async def test_a_server_that_ignores_sigterm_is_killed_with_its_group(tmp_path: Path) -> None:
    async with running(fake("stubborn"), tmp_path / "log", ready_deadline_s=60, stop_deadline_s=0.5) as server:
        family = [server.pid, *descendants(server.pid)]
        assert len(family) == 2
    await until_gone(family)


async def until_gone(pids: list[int]) -> None:
    # The kernel takes a moment to end what was killed.
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_server_that_dies_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ArmError, match="no such model"):
        async with running(fake("dies"), tmp_path / "log", ready_deadline_s=60, stop_deadline_s=60):
            pass


async def test_a_server_that_never_gets_healthy_is_given_up(tmp_path: Path) -> None:
    sleeper = Arm("sleeper", ("sleep", "600"), {"PATH": os.environ["PATH"]}, CHECKOUT)
    with pytest.raises(ArmError, match="not healthy"):
        async with running(sleeper, tmp_path / "log", ready_deadline_s=0.1, stop_deadline_s=60):
            pass


async def test_the_server_is_stopped_when_its_user_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with running(fake(), tmp_path / "log", ready_deadline_s=60, stop_deadline_s=60) as server:
            _ = 1 / 0
    assert not alive(server.pid)
