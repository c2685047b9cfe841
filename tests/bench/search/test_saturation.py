import random

import pytest

from bench.metrics import percentile
from bench.run.meter import Progress
from bench.run.objectives import parse
from bench.search.saturation import Watch, most_over, rises, rising
from tests.bench.search.simulated import Queue, Server, progresses
from tests.support.results import MS, completed, result

WANTED = parse("ttft_p99<60s,error_rate<5%")


def seen(second: int, in_flight: int, *ttft_ms: float, failed: int = 0, total: int = 1000) -> Progress:
    ttft_ns = [round(ms * MS) for ms in ttft_ms]
    return Progress(0, failed, in_flight, total, 0, float(second), ttft_ns)


def watched(*states: Progress, slo: str = WANTED.text) -> Watch:
    watch = Watch(parse(slo))
    for state in states:
        watch(state)
    return watch


def test_requests_in_flight_and_ttft_that_both_keep_rising_are_a_lost_run() -> None:
    watch = watched(*(seen(second, 5 * second, 100 * second, 110 * second) for second in range(60)))
    assert watch.reason == "requests in flight and TTFT kept rising"
    assert watch.in_flight[:2] == [(0.0, 0.0), (1.0, 5.0)]


def test_either_of_them_alone_is_none() -> None:
    assert watched(*(seen(second, 5 * second, 100, 110) for second in range(60))).reason is None
    assert watched(*(seen(second, 50, 100 * second, 110 * second) for second in range(60))).reason is None


def test_a_run_that_has_filled_up_and_then_stays_as_it_is_goes_on() -> None:
    rng = random.Random(3)
    states = [
        seen(second, min(10 * second, 50) + rng.randint(-5, 5), *[min(100 * second, 500) + rng.randint(0, 99)] * 2)
        for second in range(60)
    ]
    assert watched(*states).reason is None


def test_a_rise_too_small_to_matter_goes_on() -> None:
    assert watched(*(seen(second, 500 + second, 1000 + second, 1000 + second) for second in range(60))).reason is None


def test_the_first_seconds_say_nothing() -> None:
    states = [seen(second, 50 * second, *[100 * second] * 9) for second in range(9)]
    assert watched(*states).reason is None


@pytest.mark.parametrize("percent", [50, 90, 99, 99.9])
@pytest.mark.parametrize("count", [1, 2, 10, 100, 101, 1000])
def test_a_percentile_is_out_of_reach_with_one_value_more_over_its_limit_than_may_be(
    count: int, percent: float
) -> None:
    over = most_over(count, percent)
    reachable = [0.0] * (count - over) + [1.0] * over
    lost = [0.0] * (count - over - 1) + [1.0] * (over + 1)
    assert percentile(reachable, percent) < 1.0
    assert percentile(lost, percent) == 1.0


def test_first_tokens_past_their_limit_end_a_run_once_their_percentile_is_out_of_reach() -> None:
    states = [seen(1, 5, 2000, 10, total=200), seen(2, 5, 2000, total=200), seen(3, 5, 2000, total=200)]
    assert watched(*states[:2], slo="ttft_p99<1s").reason is None
    found = watched(*states, slo="ttft_p99<1s").reason
    assert found == "3 of 200 requests were past 1000 ms to their first token"
    assert watched(*states, slo="ttft_p90<1s").reason is None


def test_failures_end_a_run_once_their_share_is_out_of_reach() -> None:
    states = [seen(1, 5, failed=49), seen(2, 5, failed=50)]
    assert watched(states[0]).reason is None
    assert watched(*states).reason == "50 of 1000 requests had failed"


def test_what_comes_after_the_reason_does_not_change_it() -> None:
    assert watched(seen(1, 5, failed=50), seen(2, 5, failed=999)).reason == "50 of 1000 requests had failed"


def test_a_series_with_a_gap_is_not_said_to_rise() -> None:
    series = [(float(at), float(at)) for at in range(100) if not 30 <= at < 70]
    assert not rises(series, 0.0, 99.0)
    assert rises([(float(at), float(at)) for at in range(100)], 0.0, 99.0)


@pytest.mark.parametrize(("rate", "lost"), [(4.0, False), (20.0, True)])
async def test_a_queue_is_told_from_an_overloaded_one_while_it_runs_and_afterwards(rate: float, lost: bool) -> None:
    server = Server(Queue(8, 0.5))
    samples = [server.sample(i, *stay) for i, stay in zip(range(400), server.queue.stays(rate, 5), strict=False)]
    assert (watched(*progresses(samples)).reason is not None) is lost
    assert rising(result(samples)) is lost


def test_few_requests_are_not_said_to_pile_up() -> None:
    assert not rising(result([completed(0.1 * index, ttft_ms=1000 * index) for index in range(20)]))
    assert not rising(result([]))
