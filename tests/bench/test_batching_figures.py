import pytest
from hypothesis import given

from bench.batching_figures import Arm, busy_share, depth, latencies_ns, measure, waits
from bench.batching_sim import MS, Batching, Device, Policy, simulate
from bench.batching_trace import Trace, Traffic
from tests.bench.test_batching_sim import DEVICE, batchings, traces

SMOOTH = Traffic(burst_s=1.0, duty=1.0, duration_s=400.0)
ONE_BY_ONE = Arm(Batching(Policy.JOIN_LATE, max_batch_size=1))


@given(traces, batchings)
def test_littles_law_holds_exactly(trace: list[int], batching: Batching) -> None:
    batches = simulate(trace, batching, DEVICE)
    area, _ = depth(trace, batches)
    assert area == sum(waits(trace, batches))


# Fixed seed. At 0.8 of the capacity 30,000 waits are far from independent: a few per cent of the mean.
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_by_one_at_random_waits_as_long_as_m_d_1_says(load: float) -> None:
    device = Device(step_ms=8.0, item_ms=0.0)
    found = measure(Trace(SMOOTH, 100, seed=1).at(load * 125), ONE_BY_ONE, device)
    assert found.waiting_ms.mean == pytest.approx(load / (1 - load) * 8.0 / 2, rel=0.15)
    assert found.busy == pytest.approx(load, rel=0.05)


def test_random_arrivals_find_the_device_busy_as_often_as_it_is() -> None:
    found = measure(Trace(SMOOTH, 100, seed=2).at(75), ONE_BY_ONE, Device(8.0, 0.0))
    assert found.busy_at_arrival == pytest.approx(found.busy, rel=0.05)


def test_the_figures_of_a_run_by_hand() -> None:
    # Alone at 0, done at 5.5; three come meanwhile and run together from 5.5 to 12.
    arrivals = [0, 1 * MS, 2 * MS, 5 * MS]
    found = measure(arrivals, Arm(Batching(Policy.JOIN_LATE, max_batch_size=4)), DEVICE)
    assert found.latency_ms.count == 4
    assert (found.latency_ms.min, found.latency_ms.max) == (5.5, 11.0)
    assert found.waiting_ms.mean == pytest.approx((4.5 + 3.5 + 0.5) / 4)
    assert found.execution_ms == pytest.approx((5.5 + 6.5) / 2)
    assert (found.batch, found.occupancy, found.busy, found.busy_at_arrival) == (2.0, 0.5, 1.0, 0.75)
    assert (found.depth, found.depth_max) == (pytest.approx(8.5 / 12), 3)
    assert found.rate == pytest.approx(4 / 0.012)
    assert found.of_capacity == pytest.approx(found.rate / DEVICE.capacity(4))


def test_the_wait_in_a_forming_batch_is_told_from_the_wait_in_line() -> None:
    found = measure([0, 3 * MS], Arm(Batching(Policy.SEAL_EARLY, max_queue_delay_ms=2)), DEVICE)
    assert found.forming_ms == 2.0
    assert found.waiting_ms.mean == pytest.approx((2.0 + 4.5) / 2)


@given(traces, batchings)
def test_a_latency_is_a_wait_and_a_step(trace: list[int], batching: Batching) -> None:
    batches = simulate(trace, batching, DEVICE)
    steps = sum(batch.size * (batch.end_ns - batch.start_ns) for batch in batches)
    assert sum(latencies_ns(trace, batches)) == sum(waits(trace, batches)) + steps


def test_a_second_device_halves_the_share_in_which_they_are_busy() -> None:
    batches = simulate([0, 0], Batching(Policy.JOIN_LATE, max_batch_size=1), DEVICE, devices=2)
    assert busy_share(batches, 2) == 1.0
    assert busy_share(batches[:1], 2) == 0.5


def test_without_arrivals_there_are_no_figures() -> None:
    with pytest.raises(ValueError, match="no arrivals"):
        measure([], ONE_BY_ONE, DEVICE)
