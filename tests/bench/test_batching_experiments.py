"""The chapter's directions, as inequalities, on a trace shorter than the report's."""

import pytest

from bench.batching_chapter import BOLDER, BOUND_MS, BURST_S, DEVICE, DUTY, GREEDY, RATE, SMOOTH_BATCH, TIMID, WAITING
from bench.batching_experiments import DeviceRow, device_rows, push
from bench.batching_figures import Arm, Figures, measure
from bench.batching_search import highest_rate, p99_ms
from bench.batching_sim import Batching
from bench.batching_trace import Trace, Traffic

BURSTS = Traffic(BURST_S, DUTY, duration_s=20.0)


@pytest.fixture(scope="module", params=[1, 2, 3])
def trace(request: pytest.FixtureRequest) -> Trace:
    return Trace(BURSTS, 1600, seed=request.param)


def at_peak(trace: Trace, batching: Batching, devices: int = 1) -> Figures:
    return measure(trace.at(RATE), Arm(batching, devices), DEVICE)


def p99(figures: Figures) -> float:
    return figures.latency_ms.percentiles["p99"]


def test_the_chapters_rate_and_queue_follow_from_its_figures() -> None:
    assert pytest.approx((450, 18)) == (RATE, WAITING)


def test_p99_rises_at_peak_though_batches_stay_small_and_the_device_has_time_left(trace: Trace) -> None:
    off_peak, peak = measure(trace.at(RATE / 9), Arm(TIMID), DEVICE), at_peak(trace, TIMID)
    assert p99(off_peak) < BOUND_MS < 2 * BOUND_MS < p99(peak)
    assert peak.occupancy < 0.25
    assert peak.busy < 0.8


def test_waiting_dominates_over_execution_and_is_not_the_delays(trace: Trace) -> None:
    peak = at_peak(trace, TIMID)
    assert peak.waiting_ms.mean > 2 * peak.execution_ms
    assert peak.forming_ms < TIMID.max_queue_delay_ms < peak.waiting_ms.mean / 2


def test_arriving_requests_find_the_device_busier_than_the_clock_does(trace: Trace) -> None:
    peak = at_peak(trace, TIMID)
    assert peak.busy + 0.15 < peak.busy_at_arrival


def test_a_longer_delay_with_preferred_sizes_raises_batches_and_throughput_within_the_bound(trace: Trace) -> None:
    timid, bolder = at_peak(trace, TIMID), at_peak(trace, BOLDER)
    assert bolder.batch > timid.batch
    assert bolder.busy < timid.busy
    assert p99(bolder) < p99(timid)
    assert highest_rate(trace, Arm(BOLDER), DEVICE, BOUND_MS) > highest_rate(trace, Arm(TIMID), DEVICE, BOUND_MS)


def test_a_longer_delay_costs_its_time_where_nothing_queues(trace: Trace) -> None:
    (bolder, timid) = (measure(trace.at(20), Arm(each), DEVICE).latency_ms for each in (BOLDER, TIMID))
    assert bolder.percentiles["p50"] > timid.percentiles["p50"]


def test_greedy_waits_less_on_the_same_trace_with_larger_batches(trace: Trace) -> None:
    greedy, bolder = at_peak(trace, GREEDY), at_peak(trace, BOLDER)
    assert p99(greedy) < p99(bolder)
    assert greedy.batch > bolder.batch
    assert highest_rate(trace, Arm(GREEDY), DEVICE, BOUND_MS) > highest_rate(trace, Arm(BOLDER), DEVICE, BOUND_MS)


@pytest.mark.parametrize("batching", [BOLDER, GREEDY])
def test_pushing_on_to_95_percent_busy_breaks_the_bound(trace: Trace, batching: Batching) -> None:
    pushed = push(trace, batching, BOUND_MS)
    assert pushed.within is not None
    assert p99(pushed.within.figures) <= BOUND_MS < p99(pushed.high.figures)
    assert pushed.within.rate < pushed.high.rate
    assert pushed.within.figures.busy < pushed.high.figures.busy <= 0.95


def test_a_second_device_helps_sealed_batches_at_peak_but_no_more_than_another_setting(trace: Trace) -> None:
    timid, doubled, greedy = at_peak(trace, TIMID), at_peak(trace, TIMID, devices=2), at_peak(trace, GREEDY)
    assert p99(doubled) < p99(timid) / 2
    assert p99(greedy) < p99(timid) / 2
    assert p99(at_peak(trace, GREEDY, devices=2)) < p99(doubled)


def test_a_second_device_cannot_shorten_a_hold() -> None:
    alone = [0, 1_000_000_000]
    assert measure(alone, Arm(BOLDER, 2), DEVICE).latency_ms == measure(alone, Arm(BOLDER), DEVICE).latency_ms


def test_smooth_arrivals_saturate_a_device_that_seals_early_and_not_a_greedy_one() -> None:
    trace = Trace(Traffic(BURST_S, 1.0, duration_s=20.0), 1600, seed=1)
    timid, greedy = at_peak(trace, TIMID), at_peak(trace, GREEDY)
    assert timid.batch == pytest.approx(SMOOTH_BATCH, rel=0.05)
    assert timid.busy > 0.99
    assert p99(timid) > 10 * BOUND_MS
    # As busy, but with batches that grow with the queue: a busy device is not a late one.
    assert greedy.busy > 0.9
    assert p99(greedy) < BOUND_MS


@pytest.mark.parametrize(
    ("timid", "better", "verdict"),
    [
        ((40, 20), (20, 10), "nothing to mend"),
        ((60, 40), (20, 10), "the setting, or a device"),
        ((60, 55), (20, 10), "the setting; a device alone does not"),
        ((60, 40), (55, 30), "a device"),
        ((60, 55), (55, 30), "both together"),
        ((90, 80), (70, 60), "not even both"),
    ],
)
def test_the_verdict_says_what_brings_p99_within_the_bound(
    timid: tuple[float, float], better: tuple[float, float], verdict: str
) -> None:
    assert DeviceRow("bursts", 450, 1, timid, better).verdict(50) == verdict


def test_device_rows_hold_one_device_against_two(trace: Trace) -> None:
    row = device_rows("bursts", trace, GREEDY)[1]
    assert (row.traffic, row.rate, row.count) == ("bursts", 150, len(trace.at(150)))
    assert row.timid == tuple(p99_ms(trace, 150, Arm(TIMID, devices), DEVICE) for devices in (1, 2))
