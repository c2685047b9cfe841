"""The concurrency limit under an objective: where it rests, and what moves it."""

from random import Random
from statistics import mean

import pytest
from structlog.testing import capture_logs

from server.admission.controller import FLOOR, LOG_EVERY_S, WINDOW, Signal, SloController
from server.config import SloSettings

TPOT = 0.1  # seconds, the objective
GOOD, BAD = TPOT / 2, TPOT * 2


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def controller(ceiling: int = 64, *, ttft_ms: float | None = None, clock: Clock | None = None) -> SloController:
    """`max_wait` is 1 s."""
    slo = SloSettings(ttft_p99_ms=ttft_ms, tpot_p99_ms=TPOT * 1e3)
    return SloController(slo, 1.0, ceiling, clock or Clock())


def lowered_to(limit: int) -> SloController:
    found = controller()
    while found.limit > limit:
        found.answered(BAD, limiting=True)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bearable", [8, 24])
def test_the_limit_rests_where_one_in_a_hundred_violates(seed: int, bearable: int) -> None:
    random, found = Random(seed), controller()
    limits, violations = [], []
    for _ in range(40_000):
        chance = 0.01 * (found.limit / bearable) ** 4  # a hundredth at `bearable`
        violations.append(random.random() < chance)
        found.answered(BAD if violations[-1] else GOOD, limiting=True)
        limits.append(found.limit)
    assert 0.007 < mean(violations[10_000:]) < 0.013
    assert 0.8 * bearable < mean(limits[10_000:]) < 1.2 * bearable


def test_it_follows_a_machine_that_bears_less_and_then_more_again() -> None:
    random, found, rests = Random(1), controller(), []
    for bearable in (24, 6, 24):
        for _ in range(20_000):
            chance = 0.01 * (found.limit / bearable) ** 4
            found.answered(BAD if random.random() < chance else GOOD, limiting=True)
        rests.append(found.limit)
    before, less, after = rests
    assert 3 <= less <= 9 < 15 <= min(before, after)


def test_each_violation_lowers_the_limit_whether_it_limits_or_not() -> None:
    found = controller()
    limits = [found.limit]
    for limiting in (True, False, True, False):
        found.answered(BAD, limiting=limiting)
        limits.append(found.limit)
    assert limits == sorted(set(limits), reverse=True)
    assert found.lowered == found.tpot.violations == 4


@pytest.mark.parametrize(("ceiling", "floor"), [(64, FLOOR), (2, 2), (1, 1)])
def test_no_storm_of_violations_takes_it_below_the_floor(ceiling: int, floor: int) -> None:
    found = controller(ceiling)
    for _ in range(500):
        found.answered(BAD, limiting=True)
    assert found.limit == floor


def test_no_quiet_time_takes_it_above_the_ceiling() -> None:
    found = lowered_to(30)
    for _ in range(20_000):
        found.answered(GOOD, limiting=True)
    assert found.limit == 64
    raised = found.raised
    found.answered(GOOD, limiting=True)
    assert found.raised == raised


def test_it_is_not_raised_while_it_holds_nobody_back() -> None:
    found = lowered_to(30)
    limit = found.limit
    for _ in range(20_000):
        found.answered(GOOD, limiting=False)
    assert (found.limit, found.raised) == (limit, 0)


def test_it_starts_at_the_ceiling() -> None:
    assert controller(48).limit == 48


def test_a_first_token_has_the_objective_less_what_may_be_waited_before() -> None:
    found = controller(ttft_ms=1500)
    found.first_token(0.4, 0.1, limiting=True)
    assert found.limit == 64
    found.first_token(0.6, 0.1, limiting=True)
    assert (found.limit, found.ttft.violations) == (61, 1)


def test_a_prompt_too_long_for_the_objective_on_an_idle_engine_says_nothing() -> None:
    found = controller(ttft_ms=1500)
    found.first_token(9.0, 0.5, limiting=True)
    assert (found.limit, len(found.ttft.latest), found.ttft.p99()) == (64, 0, None)


def test_a_latency_without_an_objective_is_measured_and_steers_nothing() -> None:
    found = controller()
    for _ in range(10):
        found.first_token(99.0, 1.0, limiting=True)
    assert (found.limit, found.ttft.violations, len(found.ttft.latest)) == (64, 0, 10)
    assert found.ttft.p99() == 99


def test_the_p99_is_of_the_latest_samples_and_says_of_how_many() -> None:
    signal = Signal(None)
    assert signal.p99() is None
    signal.latest.append(5.0)
    assert signal.p99() == 5
    signal.latest.extend(float(number) for number in range(WINDOW + 1))
    assert len(signal.latest) == WINDOW
    assert signal.p99() == pytest.approx(1 + 0.99 * (WINDOW - 1))


def test_the_log_tells_its_state_now_and_then_with_each_p99s_sample_count() -> None:
    clock = Clock()
    found = controller(clock=clock)
    with capture_logs() as logs:
        found.answered(BAD, limiting=True)
        clock.now += LOG_EVERY_S
        found.answered(GOOD, limiting=True)
        found.answered(GOOD, limiting=True)
    (line,) = logs
    assert line == {
        "event": "slo_controller",
        "log_level": "info",
        "limit": 61,
        "lowered": 1,
        "raised": 1,
        "engine_ttft_p99_s": None,
        "engine_ttft_samples": 0,
        "tpot_p99_s": pytest.approx(0.2, rel=0.01),
        "tpot_samples": 2,
    }


def test_a_limit_that_rests_at_the_ceiling_is_no_news() -> None:
    clock = Clock()
    found = controller(clock=clock)
    with capture_logs() as logs:
        for _ in range(5):
            clock.now += LOG_EVERY_S
            found.answered(GOOD, limiting=True)
    assert logs == []
