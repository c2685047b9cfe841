"""What a long run comes to: stalls between two pages of series, gaps in bins, memory as a straight line."""

import os

import pytest

from bench.procfs import resident_bytes
from bench.sample import RequestSample, StreamEvent
from bench.soak import Soak, lag_buckets, stalls

MS = 1_000_000
PAGE = """# TYPE streamgauge_event_loop_lag_seconds histogram
streamgauge_event_loop_lag_seconds_bucket{le="0.01"} 90.0
streamgauge_event_loop_lag_seconds_bucket{le="0.02"} 95.0
streamgauge_event_loop_lag_seconds_bucket{le="0.05"} 98.0
streamgauge_event_loop_lag_seconds_bucket{le="+Inf"} 98.0
streamgauge_event_loop_lag_seconds_sum 0.4
"""


def test_stalls_are_what_came_between_two_pages() -> None:
    before = lag_buckets(PAGE)
    assert before == {"0.01": 90, "0.02": 95, "0.05": 98, "+Inf": 98}
    assert stalls(before, {"0.01": 190, "0.02": 195, "0.05": 198, "+Inf": 198}) == (0, "0.01")
    assert stalls(before, {"0.01": 190, "0.02": 196, "0.05": 200, "+Inf": 201}) == (2, "+Inf")


def test_gaps_are_counted_and_a_share_of_them_is_no_longer_than_said() -> None:
    found = Soak()
    stamps = [0, 20 * MS, 40 * MS, 60 * MS, 160 * MS]
    found.take(RequestSample(events=[StreamEvent(stamp, 0, True, None) for stamp in stamps]))
    found.take(RequestSample(error="cut"))
    assert (found.answered, dict(found.failed)) == (1, {"cut": 1})
    assert found.gap_ms(0.5) == pytest.approx(20.1)
    assert found.gap_ms(0.999) == pytest.approx(100.1)
    found.memory = [(5.0 * number, 5_000_000) for number in range(4)]
    assert found.as_dict()["gap_p99.9_over_p50"] == pytest.approx(100.1 / 20.1)


def test_memory_grows_by_the_slope_of_its_last_two_thirds() -> None:
    warming = [(second * 10.0, 100_000_000 + second * 1_000_000) for second in range(30)]
    steady = [(second * 10.0, 130_000_000 + (second - 30) * 10_000) for second in range(30, 90)]
    found = Soak(memory=[*warming, *steady])
    assert found.mb_per_hour == pytest.approx(3.6, rel=0.01)


def test_resident_memory_is_that_of_a_living_process() -> None:
    assert resident_bytes(os.getpid()) > 10_000_000
    assert resident_bytes(2**22 + 1) == 0
