from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from server.telemetry.buckets import SECONDS, BucketCounter


def test_buckets_start_at_50_microseconds_and_rise() -> None:
    assert SECONDS[0] == 50e-6
    assert list(SECONDS) == sorted(set(SECONDS))


@given(st.lists(st.integers(0, 10**13)))
def test_every_duration_is_counted_once_in_the_bucket_it_belongs_to(durations: list[int]) -> None:
    counter = BucketCounter()
    for ns in durations:
        counter.observe(ns)
    buckets = dict(counter.cumulative())
    assert list(buckets)[-1] == "+Inf"
    assert buckets["+Inf"] == counter.count == len(durations)
    assert counter.sum_seconds == sum(durations) / 1e9
    for seconds in SECONDS:
        assert buckets[str(seconds)] == sum(ns <= round(seconds * 1e9) for ns in durations)


def test_a_duration_on_a_bound_belongs_below_it() -> None:
    counter = BucketCounter()
    counter.observe(1_000_000)
    place = bisect_left(SECONDS, 1e-3)
    assert counter.cumulative()[place] == ("0.001", 1.0)
    assert counter.cumulative()[place - 1][1] == 0
