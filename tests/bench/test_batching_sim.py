from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.batching_sim import MS, Batching, Device, Policy, simulate

DEVICE = Device(step_ms=5.0, item_ms=0.5)
EARLY, LATE = Policy.SEAL_EARLY, Policy.JOIN_LATE

batchings = st.builds(
    Batching,
    policy=st.sampled_from(Policy),
    max_batch_size=st.just(8),
    max_queue_delay_ms=st.sampled_from((0.0, 1.0, 4.0, 20.0)),
    preferred_batch_size=st.sampled_from(((), (3,), (2, 6))),
)
traces = st.lists(st.integers(0, 200 * MS), min_size=1, max_size=80).map(sorted)


def sizes_and_starts(arrivals_ms: list[float], batching: Batching, devices: int = 1) -> list[tuple[int, float]]:
    batches = simulate([round(stamp * MS) for stamp in arrivals_ms], batching, DEVICE, devices)
    return [(batch.size, batch.start_ns / MS) for batch in batches]


@given(traces, batchings, st.integers(1, 3))
def test_every_request_runs_once_in_order_of_arrival(trace: list[int], batching: Batching, devices: int) -> None:
    batches = simulate(trace, batching, DEVICE, devices)
    assert [batch.first for batch in batches] == [sum(b.size for b in batches[:k]) for k in range(len(batches))]
    assert sum(batch.size for batch in batches) == len(trace)
    assert all(before.start_ns <= after.start_ns for before, after in pairwise(batches))


@given(traces, batchings, st.integers(1, 3))
def test_no_batch_is_empty_too_large_or_ahead_of_its_requests(
    trace: list[int], batching: Batching, devices: int
) -> None:
    for batch in simulate(trace, batching, DEVICE, devices):
        assert 1 <= batch.size <= batching.max_batch_size
        assert trace[batch.first + batch.size - 1] <= batch.sealed_ns <= batch.start_ns
        assert batch.end_ns - batch.start_ns == DEVICE.step_ns(batch.size)


@given(traces, batchings, st.integers(1, 3))
def test_no_more_steps_run_at_once_than_there_are_devices(trace: list[int], batching: Batching, devices: int) -> None:
    batches = simulate(trace, batching, DEVICE, devices)
    for batch in batches:
        assert sum(other.start_ns <= batch.start_ns < other.end_ns for other in batches) <= devices


@given(traces, batchings)
def test_no_batch_is_held_beyond_the_delay_of_its_first_request(trace: list[int], batching: Batching) -> None:
    free = 0
    for batch in simulate(trace, batching, DEVICE):
        due = trace[batch.first] + batching.delay_ns
        assert batch.sealed_ns <= (due if batching.policy is EARLY else max(due, free))
        free = batch.end_ns


@given(traces)
def test_a_greedy_device_is_never_idle_while_a_request_waits(trace: list[int]) -> None:
    free = 0
    for batch in simulate(trace, Batching(LATE, 8), DEVICE):
        assert batch.start_ns == max(free, trace[batch.first])
        free = batch.end_ns


def test_a_batch_sealed_early_takes_nobody_in_while_it_waits() -> None:
    arrivals = [0.0, 1.0, 2.5, 3.5, 5.0]
    assert sizes_and_starts(arrivals, Batching(EARLY, max_queue_delay_ms=2)) == [(2, 2.0), (2, 8.0), (1, 14.0)]


def test_a_greedy_device_takes_all_that_waits_when_it_is_free() -> None:
    assert sizes_and_starts([0.0, 1.0, 2.5, 3.5, 5.0], Batching(LATE)) == [(1, 0.0), (4, 5.5)]


def test_an_idle_device_holds_for_the_delay_but_no_longer() -> None:
    assert sizes_and_starts([0.0, 1.0, 4.0], Batching(LATE, max_queue_delay_ms=2)) == [(2, 2.0), (1, 8.0)]


@pytest.mark.parametrize("policy", Policy)
def test_a_preferred_size_goes_at_once(policy: Policy) -> None:
    batching = Batching(policy, max_queue_delay_ms=50, preferred_batch_size=(3,))
    assert sizes_and_starts([0.0, 1.0, 2.0], batching) == [(3, 2.0)]


def test_the_largest_preferred_size_that_waits_is_taken() -> None:
    batching = Batching(LATE, max_queue_delay_ms=50, preferred_batch_size=(2, 4))
    arrivals = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert sizes_and_starts(arrivals, batching) == [(2, 1.0), (4, 7.0), (1, 56.0)]


def test_once_the_oldest_is_late_all_that_waits_goes() -> None:
    batching = Batching(LATE, max_queue_delay_ms=3, preferred_batch_size=(2,))
    assert sizes_and_starts([0.0, 0.0, 1.0, 2.0, 3.0], batching) == [(2, 0.0), (3, 6.0)]


def test_sealed_early_a_larger_preferred_size_is_never_reached() -> None:
    trace = [index * MS // 10 for index in range(400)]
    batching = Batching(EARLY, max_queue_delay_ms=50, preferred_batch_size=(8, 16))
    assert {batch.size for batch in simulate(trace, batching, DEVICE)} == {8}


def test_two_devices_run_two_batches_side_by_side() -> None:
    assert sizes_and_starts([0.0, 1.0, 2.0], Batching(LATE), devices=2) == [(1, 0.0), (1, 1.0), (1, 5.5)]


def test_a_step_takes_the_scripted_engines_time() -> None:
    assert DEVICE.step_ns(6) == 8 * MS
    assert DEVICE.capacity(32) == pytest.approx(32 / 0.021)


def test_a_preferred_size_above_the_largest_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.\.8"):
        Batching(EARLY, 8, 1.0, (8, 16))
