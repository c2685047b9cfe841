import random
from collections.abc import Callable
from itertools import accumulate, count
from math import sqrt

import numpy as np
import pytest

from bench.search.bracket import Plan, next_rate
from bench.search.confidence import Estimate, estimate, percentile_interval
from bench.search.trial import Trial
from tests.bench.search.simulated import Queue

RUNS = 150
SEARCHES = 50
BRUTE_SEED, SEARCH_SEED = 1_000_000, 2_000_000


def trials(*outcomes: tuple[float, int, int]) -> list[Trial]:
    """At each rate so many that met and so many that missed."""
    return [Trial(rate, 0, outcome) for rate, met, missed in outcomes for outcome in [True] * met + [False] * missed]


def known(found: Estimate | None) -> Estimate:
    assert found is not None
    return found


def test_trials_that_all_came_out_alike_tell_of_no_edge() -> None:
    assert estimate([]) is None
    assert estimate(trials((1, 3, 0), (2, 3, 0))) is None
    assert estimate(trials((1, 0, 3), (2, 0, 3))) is None


def test_the_edge_lies_between_what_met_and_what_missed() -> None:
    found = known(estimate(trials((10, 3, 0), (10.5, 0, 3))))
    assert found.low < 10 < found.rate < 10.5 < found.high
    assert found.trials == 6


def test_more_trials_that_agree_make_the_interval_narrower() -> None:
    widths = [(found.high - found.low) for n in (1, 3, 9) if (found := known(estimate(trials((10, n, 0), (11, 0, n)))))]
    assert widths[0] > widths[1] > widths[2]


def test_trials_that_contradict_each_other_make_it_wider() -> None:
    clear = known(estimate(trials((9, 4, 0), (10, 4, 0), (11, 0, 4), (12, 0, 4))))
    torn = known(estimate(trials((9, 3, 1), (10, 2, 2), (11, 2, 2), (12, 1, 3))))
    assert torn.high / torn.low > clear.high / clear.low
    assert torn.rate == pytest.approx(10.5, rel=0.1)


def test_a_rate_in_other_units_gives_the_same_figure_in_those() -> None:
    one = known(estimate(trials((1, 2, 0), (1.5, 1, 2), (2, 0, 3))))
    thousand = known(estimate(trials((1000, 2, 0), (1500, 1, 2), (2000, 0, 3))))
    assert [thousand.low, thousand.rate, thousand.high] == pytest.approx(
        [1e3 * one.low, 1e3 * one.rate, 1e3 * one.high]
    )


@pytest.mark.parametrize(
    ("queue", "percent", "limit_s"),
    [(Queue(4, 0.8), 99, 2.0), (Queue(16, 0.8), 99, 2.0), (Queue(1, 1.0), 90, 6.0)],
    ids=["M/G/4", "M/G/16", "M/G/1"],
)
def test_a_search_on_a_queue_covers_its_true_capacity_in_nine_of_ten(
    queue: Queue, percent: float, limit_s: float
) -> None:
    def meets(rate: float, seed: int) -> bool:
        return queue.meets(rate, seed, requests=240, percent=percent, limit_s=limit_s)

    low, high = 0.3 * queue.servers, 1.5 * queue.servers
    while high / low > 1.01:
        rate = sqrt(low * high)
        met = sum(meets(rate, BRUTE_SEED + seed) for seed in range(RUNS))
        low, high = (rate, high) if met > RUNS / 2 else (low, rate)

    covered = 0
    seeds = count(SEARCH_SEED)
    for _ in range(SEARCHES):
        found = known(estimate(_search(queue.servers / 2, lambda rate: meets(rate, next(seeds)))))
        covered += found.low <= sqrt(low * high) <= found.high
        assert found.high / found.low < 4
    assert covered >= 0.9 * SEARCHES


def _search(start: float, meets: Callable[[float], bool]) -> list[Trial]:
    plan = Plan(start, start / 16, start * 16)
    found: list[Trial] = []
    while (rate := next_rate(found, plan)) is not None:
        found.append(Trial(rate, len(found), meets(rate)))
    return found


def test_a_percentiles_interval_covers_the_true_one_in_nine_of_ten() -> None:
    rng = random.Random(1)
    true = -np.log(0.1)  # the 90th percentile of an exponential of mean 1
    intervals = [percentile_interval([rng.expovariate(1) for _ in range(300)], 90) for _ in range(100)]
    assert sum(low <= true <= high for low, high in intervals) >= 90


def test_values_that_hang_together_leave_more_doubt_than_the_same_ones_shuffled() -> None:
    rng = random.Random(2)
    values = list(accumulate((rng.gauss(0, 1) for _ in range(600)), lambda before, noise: 0.9 * before + noise))
    shuffled = rng.sample(values, len(values))
    (low, high), (shuffled_low, shuffled_high) = (percentile_interval(each, 50) for each in (values, shuffled))
    assert high - low > 1.5 * (shuffled_high - shuffled_low)


def test_a_single_value_has_an_interval_of_nothing() -> None:
    assert percentile_interval([3.0], 99) == (3.0, 3.0)
