import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.procfs import CpuTime, alive, descendants, machine, process_cpu, tree_cpu


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Process 1 with two threads and a child 2, which has a child 3."""
    for pid, task, cpu, children in [(1, 1, "100 10 5", "2 "), (1, 11, "30 3 1", ""), (2, 2, "7 1 1", "3 ")]:
        folder = tmp_path / str(pid) / "task" / str(task)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(cpu + "\n")
        (folder / "children").write_text(children)
    return tmp_path


def test_the_cpu_time_of_a_process_is_that_of_all_its_threads(proc: Path) -> None:
    assert process_cpu(1, proc) == CpuTime(130, 13)


def test_the_cpu_time_of_a_tree_includes_its_descendants(proc: Path) -> None:
    assert tree_cpu(1, proc) == CpuTime(137, 14)
    # 3 is gone already.
    assert descendants(1, proc) == [2, 3]


def test_a_process_that_is_gone_has_used_nothing(proc: Path) -> None:
    assert process_cpu(99, proc) == CpuTime()
    assert not alive(99, proc)


@pytest.mark.parametrize(("stat", "expected"), [("1 (a) b (c) S 0 1", True), ("1 (python) Z 0 1", False)])
def test_a_zombie_is_not_alive(proc: Path, stat: str, expected: bool) -> None:
    (proc / "1" / "stat").write_text(stat)
    assert alive(1, proc) is expected


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
