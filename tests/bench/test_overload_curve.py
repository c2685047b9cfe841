import os
import time

from bench.overload_arms import Station
from bench.overload_curve import Clocks, Where, busy_ns, run_point
from bench.overload_plan import Lengths, Phase, Workload, make_plan
from bench.overload_point import Objectives
from tests.bench.bytes import playing

WORKLOAD = Workload(Lengths(16, 64, 128, 0.5), Lengths(2, 4, 8, 0.5), seed=1)
REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


async def test_a_point_has_an_answer_for_each_measured_request_in_their_order() -> None:
    plan = make_plan(WORKLOAD, [Phase(100.0, 0.3)], seed=3, number=1, warmup_s=0.1)
    async with playing(REFUSAL) as port:
        station = Station(port, os.getpid(), "m", deadline_s=30.0)
        point = await run_point(station, Where("ours", 0, 2.0, 100.0), plan, Objectives(1.0, 0.2))
    assert [one.request for one in point.answered] == list(plan.measured)
    due = [one.sample.scheduled_ns or 0 for one in point.answered]
    offsets = plan.offsets[plan.warmup :]
    assert [round((stamp - due[0]) / 1e6) for stamp in due] == [round((at - offsets[0]) * 1e3) for at in offsets]
    assert all(one.sample.status == 503 for one in point.answered)


def test_what_neither_server_nor_client_used_was_used_by_others() -> None:
    cost = Clocks(100, 20, 30, 10, 90).since(Clocks(0, 0, 0, 0, 0))
    assert (cost.wall_ns, cost.api_ns, cost.others_ns) == (100, 20, 50)
    assert Clocks(100, 20, 80, 20, 90).since(Clocks(0, 0, 0, 0, 0)).others_ns == 0


def test_clocks_of_a_live_process_move() -> None:
    before = Clocks.read(os.getpid())
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    cost = Clocks.read(os.getpid()).since(before)
    assert cost.api_ns >= 50_000_000 and cost.client_ns >= 50_000_000


def test_idle_and_waiting_for_disks_are_not_busy() -> None:
    second = os.sysconf("SC_CLK_TCK")
    stat = f"cpu  {second} 0 {second} 900 900 0 0 {second} 7 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert busy_ns(stat) == 3_000_000_000
