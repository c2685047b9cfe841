import pytest

from bench.batching_figures import Arm
from bench.batching_search import RATE_STEP, Found, best, highest_rate, p99_ms, settings
from bench.batching_sim import Batching, Device, Policy
from bench.batching_trace import Trace, Traffic

DEVICE = Device(5.0, 0.5)
GREEDY = Batching(Policy.JOIN_LATE)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Trace(Traffic(burst_s=0.02, duty=0.2, duration_s=10.0), 600, seed=1)


@pytest.mark.parametrize("policy", Policy)
def test_the_highest_rate_is_within_the_bound_and_the_next_is_not(trace: Trace, policy: Policy) -> None:
    arm = Arm(Batching(policy, max_queue_delay_ms=4))
    rate = highest_rate(trace, arm, DEVICE, bound_ms=50)
    assert 0 < rate < trace.top_rate
    assert p99_ms(trace, rate, arm, DEVICE) <= 50 < p99_ms(trace, rate + RATE_STEP, arm, DEVICE)


def test_a_bound_below_one_step_is_met_at_no_rate(trace: Trace) -> None:
    assert highest_rate(trace, Arm(GREEDY), DEVICE, bound_ms=5) == 0


def test_a_bound_that_nothing_reaches_is_met_at_every_rate(trace: Trace) -> None:
    assert highest_rate(trace, Arm(GREEDY), DEVICE, bound_ms=1e9) == trace.top_rate


def test_the_best_has_the_highest_rate_and_of_equals_the_least_to_set() -> None:
    long = Found(Batching(Policy.JOIN_LATE, max_queue_delay_ms=8), 300 + RATE_STEP)
    sized = Found(Batching(Policy.JOIN_LATE, preferred_batch_size=(8,)), 300)
    plain, slow = Found(GREEDY, 300), Found(Batching(Policy.SEAL_EARLY), 40)
    assert best([slow, long, sized, plain]) == plain
    assert best([slow, long]) == long


def test_each_setting_is_tried_once() -> None:
    tried = settings()
    assert len(tried) == len(set(tried))
    assert GREEDY in tried
