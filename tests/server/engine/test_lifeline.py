"""The engine's processes must not outlive the server, however that ends."""

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sampling.vllm_plugin import LIFELINE, register
from server.engine.lifeline import Lifeline

DEADLINE_S = 20

# A server with two engine processes, as vLLM starts them; prints their ids, then waits.
SERVER = """
import multiprocessing, time
from sampling.vllm_plugin import register
from server.engine.lifeline import Lifeline

def engine(started):
    register()
    started.release()
    time.sleep(600)

if __name__ == "__main__":
    lifeline = Lifeline()
    context = multiprocessing.get_context("spawn")
    started = context.Semaphore(0)
    engines = [context.Process(target=engine, args=(started,), daemon=True) for _ in range(2)]
    for process in engines:
        process.start()
    for _ in engines:
        started.acquire()
    print(*[process.pid for process in engines], lifeline.folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "fake_server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
def lifeline(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lifeline]:
    monkeypatch.delenv(LIFELINE, raising=False)
    lifeline = Lifeline()
    yield lifeline
    lifeline.close()
    os.environ.pop(LIFELINE, None)


def wait_for_end(process: psutil.Process) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.01)


def test_engine_processes_end_when_the_server_is_killed(script: Path) -> None:
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            *pids, folder = server.stdout.readline().split()
            engines = [psutil.Process(int(pid)) for pid in pids]
            assert all(os.getpgid(engine.pid) == engine.pid for engine in engines)  # Ctrl-C does not reach them
            assert Path(folder).exists()
        finally:
            server.send_signal(signal.SIGKILL)
    for engine in engines:
        wait_for_end(engine)
    assert not Path(folder).exists()


def test_the_pipe_is_for_us_alone_and_goes_with_us(lifeline: Lifeline) -> None:
    path = Path(os.environ[LIFELINE])
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    lifeline.close()
    lifeline.close()
    assert not lifeline.folder.exists()


def test_in_a_process_that_is_nobodys_engine_the_plugin_does_nothing(
    lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = os.getpgid(0)
    register()  # the server's own process: it has no parent that started it as an engine
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    monkeypatch.delenv(LIFELINE)
    register()  # an engine of another server
    assert os.getpgid(0) == group
