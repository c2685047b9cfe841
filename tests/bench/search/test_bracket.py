from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest

from bench.search.bracket import Bracket, Plan, bracket, may_stop_early, next_rate
from bench.search.trial import Trial

PLAN = Plan(start=1.0, low=0.125, high=64.0)


def trial(rate: float, met: bool) -> Trial:
    return Trial(rate, 0, met)


def searched(meets: Callable[[float, int], bool], plan: Plan = PLAN) -> list[Trial]:
    """All trials of a search; `meets` is given the rate and how many trials there were before."""
    trials: list[Trial] = []
    while (rate := next_rate(trials, plan)) is not None:
        trials.append(trial(rate, meets(rate, len(trials))))
        assert len(trials) <= plan.most_trials
    return trials


@pytest.mark.parametrize("edge", [0.13, 0.9, 1.0, 1.7, 23.0, 63.0])
@pytest.mark.parametrize("width", [0.02, 0.05, 0.3])
def test_an_edge_is_found_to_the_asked_width_and_tried_often_enough_at_both_sides(edge: float, width: float) -> None:
    trials = searched(lambda rate, _: rate <= edge, replace(PLAN, width=width))
    low, high = bracket(trials)
    assert low is not None and high is not None
    assert low <= edge < high <= low * (1 + width)
    for side in (low, high):
        assert sum(trial.rate == side for trial in trials) == PLAN.repeat


def test_it_doubles_until_a_rate_is_missed_and_then_halves_what_is_between() -> None:
    rates = [trial.rate for trial in searched(lambda rate, _: rate < 5, replace(PLAN, width=0.5))]
    assert rates[:5] == [1, 2, 4, 8, 5.657]


def test_it_halves_until_a_rate_is_met() -> None:
    rates = [trial.rate for trial in searched(lambda rate, _: rate < 0.3)]
    assert rates[:3] == [1, 0.5, 0.25]


def test_objectives_that_no_rate_meets_end_the_search_at_its_lowest() -> None:
    trials = searched(lambda rate, _: False)
    assert [trial.rate for trial in trials] == [1, 0.5, 0.25, 0.125, 0.125, 0.125]
    assert bracket(trials) == (None, 0.125)


def test_objectives_that_every_rate_meets_end_the_search_at_its_highest() -> None:
    trials = searched(lambda rate, _: True, replace(PLAN, high=5.0))
    assert [trial.rate for trial in trials] == [1, 2, 4, 5, 5, 5]
    assert bracket(trials) == (5, None)


def test_a_single_rate_to_try_is_tried_as_often_as_asked() -> None:
    assert len(searched(lambda rate, _: True, Plan(3.0, 3.0, 3.0, repeat=2))) == 2


def test_a_lucky_run_above_the_edge_is_outvoted_by_its_repeats() -> None:
    trials = searched(lambda rate, number: rate <= 3 or number == 2)  # the third trial, at 4
    low, high = bracket(trials)
    assert low is not None and high is not None
    assert low <= 3.0 < high
    assert trial(4.0, True) in trials


def test_an_unlucky_run_below_the_edge_is_outvoted_by_what_is_found_around_it() -> None:
    trials = searched(lambda rate, number: rate <= 3 and number != 1)  # the second trial, at 2
    low, high = bracket(trials)
    assert low is not None and high is not None
    assert trial(2.0, False) in trials
    assert low >= 2.0 and high <= low * 1.05


def test_outcomes_that_contradict_each_other_use_up_no_more_than_the_planned_trials() -> None:
    trials = searched(lambda _, number: number % 2 == 0, replace(PLAN, most_trials=15))
    assert len(trials) <= 15


def test_of_splits_that_are_contradicted_equally_the_lowest_counts() -> None:
    assert bracket([trial(1, True), trial(2, True), trial(2, False), trial(3, False)]) == (1, 2)
    assert bracket([]) == (None, None)


def test_only_far_from_the_edge_a_run_may_be_cut_short() -> None:
    assert may_stop_early([])
    assert may_stop_early([trial(1, True)])
    assert may_stop_early([trial(1, True), trial(4, False)])
    assert not may_stop_early([trial(1, True), trial(2, False)])
    assert Bracket(1, None).ratio == inf


@pytest.mark.parametrize(("low", "start", "high"), [(0, 1, 2), (2, 1, 3), (1, 4, 3)])
def test_rates_that_do_not_ascend_make_no_plan(low: float, start: float, high: float) -> None:
    with pytest.raises(ValueError, match="rates ascend"):
        Plan(start, low, high)
