import pytest

from bench.overload_arms import Station
from bench.overload_fairness import Fairness, run_fairness
from bench.overload_plan import Lengths, Workload
from tests.bench.bytes import DONE, SSE_HEAD, chunked, event, playing, usage_event
from tests.support.waiting import turns

WORKLOAD = Workload(Lengths(16, 64, 128, 0.5), Lengths(2, 4, 8, 0.5), seed=1)
CHOICE = {"index": 0, "text": "a", "finish_reason": "length"}
ANSWER = SSE_HEAD + chunked(
    event({"choices": [CHOICE], "timings": {"stages_ms": {"admit": 12.5}}}), usage_event(1), DONE
)


async def test_the_modest_keys_waits_come_from_the_servers_own_timings() -> None:
    async with playing(ANSWER) as port:
        station = Station(port, 0, "m", deadline_s=30.0)
        found = await run_fairness(station, WORKLOAD, ["a", "b"], connections=2, seconds=1.0, settle_s=0.0)
        await turns()  # the flood was cut off in the middle of an answer
    assert found.admit_ms == [12.5] == [found.admit_p95_ms]
    assert len(found.alone_ttft_ms) == len(found.beside_ttft_ms) == 1
    assert found.modest_refused == found.flood_refused == 0
    assert found.releases > 0 and found.release_gap_ms == pytest.approx(found.seconds * 1e3 / found.releases)


def test_nothing_released_means_no_gap() -> None:
    assert Fairness([], [], [], 0, 0, 0, releases=0, seconds=2.0).release_gap_ms is None
