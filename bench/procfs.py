"""CPU time of processes and facts about the machine, from /proc."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Nanoseconds on a CPU, and nanoseconds runnable but waiting for one.

    A thread that ends takes its `wait_ns` with it, so that a difference of two readings may be short of it.
    """

    run_ns: int = 0
    wait_ns: int = 0

    def __add__(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.run_ns + other.run_ns, self.wait_ns + other.wait_ns)

    def __sub__(self, other: "CpuTime") -> "CpuTime":
        return CpuTime(self.run_ns - other.run_ns, self.wait_ns - other.wait_ns)


def process_cpu(pid: int, proc: Path = PROC) -> CpuTime:
    """Of all threads of a process: its own schedstat file would tell of the main thread only."""
    return CpuTime(_run_ns(pid), sum(_wait_ns(task) for task in _tasks(pid, proc)))


def tree_cpu(pid: int, proc: Path = PROC) -> CpuTime:
    """Of a process and all its living descendants."""
    return sum((process_cpu(member, proc) for member in [pid, *descendants(pid, proc)]), CpuTime())


def descendants(pid: int, proc: Path = PROC) -> list[int]:
    children = [int(child) for task in _tasks(pid, proc) for child in _read(task / "children").split()]
    return [member for child in children for member in (child, *descendants(child, proc))]


def alive(pid: int, proc: Path = PROC) -> bool:
    """False for a zombie: it holds no CPU and no memory."""
    # The name, which comes before the state, may itself hold blanks and parentheses.
    state = _read(proc / str(pid) / "stat").rpartition(")")[2].split()
    return bool(state) and state[0] != "Z"


def resident_bytes(pid: int, proc: Path = PROC) -> int:
    """Of one process; 0 once it is gone."""
    fields = _read(proc / str(pid) / "statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) >= 2 else 0


def _tasks(pid: int, proc: Path) -> list[Path]:
    try:
        return list((proc / str(pid) / "task").iterdir())
    except FileNotFoundError:
        return []


def _run_ns(pid: int) -> int:
    # The kernel's own sum, threads that have ended included: a sum over /proc/PID/task falls when one ends.
    # The clock's id is what clock_getcpuclockid(3) makes of a process id.
    try:
        return time.clock_gettime_ns(~pid << 3 | 2)
    except OSError:
        return 0


def _wait_ns(task: Path) -> int:
    fields = _read(task / "schedstat").split()
    return int(fields[1]) if len(fields) >= 2 else 0


def _read(path: Path) -> str:
    # Threads and children come and go while they are being counted.
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def machine(proc: Path = PROC) -> dict[str, object]:
    return {
        "cpu": _field(proc / "cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _field(proc / "meminfo", "MemTotal"),
        "kernel": os.uname().release,
    }


def _field(path: Path, name: str) -> str | None:
    lines = (line.partition(":") for line in _read(path).splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), None)
