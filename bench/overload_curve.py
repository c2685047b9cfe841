"""One point of the curve: a plan carried out on a running arm."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from bench.load import run_open_loop
from bench.overload_arms import Station
from bench.overload_plan import Plan
from bench.overload_point import Answered, Cost, Objectives, Point
from bench.procfs import process_cpu, tree_cpu
from bench.sample import RequestSample

STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class Clocks:
    """Readings whose difference is a Cost."""

    wall_ns: int
    api_ns: int
    tree_ns: int
    client_ns: int
    machine_ns: int

    @classmethod
    def read(cls, pid: int) -> "Clocks":
        api_ns, tree_ns = process_cpu(pid).run_ns, tree_cpu(pid).run_ns
        return cls(time.monotonic_ns(), api_ns, tree_ns, time.process_time_ns(), busy_ns(STAT.read_text()))

    def since(self, before: "Clocks") -> Cost:
        tree_ns, client_ns = self.tree_ns - before.tree_ns, self.client_ns - before.client_ns
        return Cost(
            wall_ns=self.wall_ns - before.wall_ns,
            api_ns=self.api_ns - before.api_ns,
            tree_ns=tree_ns,
            client_ns=client_ns,
            # Never below zero: the machine counts in ticks.
            others_ns=max(0, self.machine_ns - before.machine_ns - tree_ns - client_ns),
        )


def busy_ns(stat: str) -> int:
    """Of all processors since boot, from /proc/stat; time stolen by other machines counts as busy. See proc(5)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in stat.split()[1:9])
    return (user + nice + system + irq + softirq + steal) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Where:
    """Which point of a run this is; as in Point."""

    arm: str
    round: int
    factor: float
    rate: float


async def run_point(station: Station, where: Where, plan: Plan, objectives: Objectives) -> Point:
    """Ends at the latest one request deadline after the last arrival."""

    async def send(index: int, due_ns: int | None) -> RequestSample:
        return await station.send(plan.requests[index], due_ns)

    before = Clocks.read(station.pid)
    result = await run_open_loop(send, iter(plan.offsets), requests=len(plan.measured), warmup=plan.warmup)
    return Point(
        arm=where.arm,
        round=where.round,
        factor=where.factor,
        rate=where.rate,
        window_s=plan.window_s,
        objectives=objectives,
        answered=[Answered(*pair) for pair in zip(plan.measured, result.samples, strict=True)],
        cost=Clocks.read(station.pid).since(before),
    )
