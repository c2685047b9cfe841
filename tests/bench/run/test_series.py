import asyncio

import pytest

from bench.run.address import Address
from bench.run.series import Series, parse, values, watch
from bench.run.spec import Closed, Spec
from tests.support.truth_server import truth_server
from tests.support.waiting import DEADLINE_S, until

PAGE = """# HELP streamgauge_engine_waiting Sequences that waited.
# TYPE streamgauge_engine_waiting gauge
streamgauge_engine_waiting 3.0
streamgauge_admission_queued 4.0
streamgauge_engine_busy_ratio 0.5
streamgauge_batch_occupancy_bucket{le="0.5"} 7
streamgauge_batch_occupancy_sum 2.0
streamgauge_batch_occupancy_count 8
streamgauge_tokens_total{kind="output"} 99
vllm:num_requests_running{engine="0",model_name="a } b"} 3.0
vllm:num_requests_running{engine="1",model_name="a } b"} 2.0 1700000000
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:kv_cache_usage_perc{engine="1"} 0.4
"""


def address(url: str) -> Address:
    return Address.of(Spec(url, "m", Closed(1), 1))


def test_a_page_is_read_for_what_is_kept() -> None:
    assert parse(PAGE) == {
        "streamgauge_engine_waiting": 3.0,
        "streamgauge_admission_queued": 4.0,
        "streamgauge_engine_busy_ratio": 0.5,
        "streamgauge_batch_occupancy_sum": 2.0,
        "streamgauge_batch_occupancy_count": 8.0,
        "vllm:num_requests_running": 5.0,
        "vllm:kv_cache_usage_perc": pytest.approx(0.3),
    }


@pytest.mark.parametrize("text", ["", "<html>\n{}\n", "streamgauge_engine_waiting\n", "streamgauge_engine_waiting x"])
def test_what_is_no_sample_is_passed_over(text: str) -> None:
    assert parse(text) == {}


def test_an_occupancy_is_that_of_the_steps_between_two_readings() -> None:
    before = {"streamgauge_batch_occupancy_sum": 2.0, "streamgauge_batch_occupancy_count": 8.0}
    after = {"streamgauge_batch_occupancy_sum": 5.0, "streamgauge_batch_occupancy_count": 12.0}
    assert values(after, before) == {"streamgauge_batch_occupancy": 0.75}
    assert values(after, after) == {}
    assert values(before, {}) == {}


async def test_a_server_without_metrics_is_asked_once() -> None:
    found: Series = {}
    async with truth_server() as server, asyncio.timeout(DEADLINE_S):
        await watch(address(server.url), found)
    assert found == {}


async def test_a_server_that_is_gone_is_no_error() -> None:
    async with truth_server() as server:
        pass
    async with asyncio.timeout(DEADLINE_S):
        await watch(address(server.url), {})


async def test_a_reading_that_fails_leaves_a_hole_and_the_watch_goes_on() -> None:
    found: Series = {}
    async with truth_server(pages={"/metrics": PAGE.encode()}) as server:
        watching = asyncio.create_task(watch(address(server.url), found, period_s=0.01))
        await until(lambda: len(found.get("streamgauge_engine_waiting", ())) >= 2)
        server.pages["/metrics"] = b""
        asked = server.gets
        await until(lambda: server.gets >= asked + 2)
        server.pages["/metrics"] = b"streamgauge_engine_waiting 9\n"
        await until(lambda: found["streamgauge_engine_waiting"][-1][1] == 9.0)
        watching.cancel()
    stamps = [at for at, _ in found["streamgauge_engine_waiting"]]
    assert stamps == sorted(stamps)
    assert set(found) == set(values(parse(PAGE), {}))
