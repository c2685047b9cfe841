import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bench.procfs import CpuTime, alive, descendants, machine, process_cpu, tree_cpu

GONE = 2**22 + 1
"""Above any pid_max: no process has it, so that only the files tell of it."""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A process with two threads and a child, which has a child that is gone already."""
    tree = [(GONE, 1, "100 10 5", f"{GONE + 1} "), (GONE, 11, "30 3 1", ""), (GONE + 1, 2, "7 1 1", f"{GONE + 2} ")]
    for pid, task, cpu, children in tree:
        folder = tmp_path / str(pid) / "task" / str(task)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(cpu + "\n")
        (folder / "children").write_text(children)
    return tmp_path


def test_the_waiting_time_of_a_process_is_that_of_all_its_threads(proc: Path) -> None:
    assert process_cpu(GONE, proc) == CpuTime(0, 13)


def test_the_time_of_a_tree_includes_its_descendants(proc: Path) -> None:
    assert tree_cpu(GONE, proc) == CpuTime(0, 14)
    assert descendants(GONE, proc) == [GONE + 1, GONE + 2]


def test_a_process_that_is_gone_has_used_nothing(proc: Path) -> None:
    assert process_cpu(GONE + 9, proc) == CpuTime()
    assert not alive(GONE + 9, proc)


def test_the_cpu_time_of_a_thread_that_has_ended_still_counts() -> None:
    # A sum over the living threads fell when one ended, and a comparison reported negative CPU time per token.
    used = 0

    def work() -> None:
        nonlocal used
        sum(range(5_000_000))
        used = time.thread_time_ns()

    worker = threading.Thread(target=work)
    before = process_cpu(os.getpid()).run_ns
    worker.start()
    worker.join()
    assert process_cpu(os.getpid()).run_ns - before >= used > 0


@pytest.mark.parametrize(("stat", "expected"), [("1 (a) b (c) S 0 1", True), ("1 (python) Z 0 1", False)])
def test_a_zombie_is_not_alive(proc: Path, stat: str, expected: bool) -> None:
    (proc / str(GONE) / "stat").write_text(stat)
    assert alive(GONE, proc) is expected


def test_cpu_times_are_added_and_subtracted_by_part() -> None:
    assert CpuTime(5, 3) + CpuTime(2, 1) - CpuTime(1, 1) == CpuTime(6, 3)


def test_work_done_here_shows_in_our_own_cpu_time() -> None:
    before = process_cpu(os.getpid())
    sum(range(2_000_000))
    assert (process_cpu(os.getpid()) - before).run_ns > 0


def test_a_child_is_found_and_seen_to_end() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in descendants(os.getpid())
        assert alive(child.pid)
        child.communicate(b"\n", timeout=60)
        assert not alive(child.pid)


def test_the_machine_is_described() -> None:
    assert machine()["cores"] == len(os.sched_getaffinity(0))
