from collections.abc import Sequence

import pytest

from bench.regression.measures import MEASURES, Arm
from bench.regression.pairs import Visit
from bench.regression.verdicts import Outcome, Verdict, aa_width, verdicts
from bench.sample import RequestSample
from tests.bench.regression.visits import two_arms
from tests.support.results import completed, failed, result

TRIALS = 20


def by_name(found: Sequence[Verdict]) -> dict[str, Verdict]:
    return {verdict.measure: verdict for verdict in found}


def worse(found: Sequence[Verdict]) -> list[str]:
    return [verdict.measure for verdict in found if verdict.outcome is Outcome.WORSE]


def arm(name: str, *visits: Sequence[RequestSample]) -> Arm:
    return Arm([Visit(name, 0, place, result(samples)) for place, samples in enumerate(visits)])


def test_where_nothing_changed_hardly_any_trial_calls_anything_worse() -> None:
    assert sum(bool(worse(verdicts(*two_arms(seed)))) for seed in range(TRIALS)) <= TRIALS * 0.05


def test_a_server_that_is_a_fifth_slower_is_worse_in_nearly_every_trial() -> None:
    found = [set(worse(verdicts(*two_arms(seed, slower=1.2)))) for seed in range(TRIALS)]
    for measure in ("ttft_p50", "tpot_p50", "e2e_p50", "output_tokens_per_s", "requests_per_s", "cpu_us_per_token"):
        assert sum(measure in each for each in found) >= TRIALS * 0.95, measure


def test_a_server_that_is_a_fifth_faster_is_better() -> None:
    found = by_name(verdicts(*two_arms(1, slower=1 / 1.2)))
    assert {found[name].outcome for name in ("ttft_p50", "tpot_p50", "output_tokens_per_s")} == {Outcome.BETTER}


def test_of_a_few_samples_it_can_not_tell_anything() -> None:
    found = verdicts(*two_arms(1, slower=1.2, requests=2, rounds=1))
    assert {verdict.outcome for verdict in found} == {Outcome.UNKNOWN}
    assert by_name(found)["ttft_p50"].why == "4 samples, 10 needed"


def test_equal_servers_are_the_same_once_there_are_samples_enough() -> None:
    found = by_name(verdicts(*two_arms(2, requests=400, rounds=2, drift=0.002)))
    assert {found[name].outcome for name in ("ttft_p50", "tpot_p50", "gap_p99", "error_rate")} == {Outcome.SAME}


def test_the_interval_holds_the_change_that_there_is() -> None:
    found = by_name(verdicts(*two_arms(3, slower=1.2)))["tpot_p50"]
    assert found.interval is not None and found.change is not None
    assert found.interval[0] <= 0.2 <= found.interval[1]
    assert found.interval[0] <= found.change <= found.interval[1]


def test_equal_seeds_give_equal_verdicts() -> None:
    arms = two_arms(4, slower=1.1)
    assert verdicts(*arms, seed=5) == verdicts(*arms, seed=5)
    assert verdicts(*arms, seed=5) != verdicts(*arms, seed=6)


def test_a_tolerance_wide_enough_makes_a_change_none() -> None:
    arms = two_arms(5, slower=1.2)
    assert by_name(verdicts(*arms, tolerance=0.4))["tpot_p50"].outcome is Outcome.SAME


def test_a_change_below_the_aa_width_is_none() -> None:
    def quick_then_slow(name: str, first_ms: float, last_ms: float) -> Arm:
        return arm(name, *([completed(ttft_ms=ttft)] * 20 for ttft in (first_ms, first_ms, first_ms, last_ms)))

    base, other = quick_then_slow("A", 100, 150), quick_then_slow("B", 120, 120)
    found = by_name(verdicts(base, other))["ttft_p50"]
    assert found.aa_width == pytest.approx(0.5)
    assert found.change == pytest.approx(0.2)
    assert found.outcome is Outcome.UNKNOWN


def test_the_aa_width_is_of_the_first_and_last_visit_of_a_round() -> None:
    ttft = MEASURES[0]
    first, second = arm("A", [completed(ttft_ms=100)], [completed(ttft_ms=110)]), arm("B", [completed()], [completed()])
    assert aa_width(ttft, [first, second]) == pytest.approx(0.1)
    assert aa_width(ttft, [second]) == 0.0
    assert aa_width(ttft, [arm("A", [completed()])]) is None


def test_failures_are_compared_in_points_and_not_by_ratio() -> None:
    fine = [completed()] * 100
    base, other = arm("A", fine, fine), arm("B", [*fine[:80], *[failed()] * 20], [*fine[:80], *[failed()] * 20])
    found = by_name(verdicts(base, other))["error_rate"]
    assert (found.base, found.other, found.change) == (0.0, 20.0, 20.0)
    assert found.outcome is Outcome.WORSE


def test_a_single_failure_proves_nothing() -> None:
    fine = [completed()] * 100
    base, other = arm("A", fine, fine), arm("B", fine, [*fine[:99], failed()])
    assert by_name(verdicts(base, other))["error_rate"].outcome is Outcome.UNKNOWN


def test_no_failure_among_few_requests_does_not_mean_none_among_many() -> None:
    few, many = ([completed()] * count for count in (20, 400))
    assert by_name(verdicts(arm("A", few), arm("B", few)))["error_rate"].outcome is Outcome.UNKNOWN
    assert by_name(verdicts(arm("A", many), arm("B", many)))["error_rate"].outcome is Outcome.SAME


def test_a_server_that_answers_nothing_is_worse_by_its_errors() -> None:
    fine, dead = [completed()] * 50, [failed()] * 50
    found = by_name(verdicts(arm("A", fine, fine), arm("B", dead, dead)))
    assert found["error_rate"].outcome is Outcome.WORSE
    assert (found["ttft_p50"].other, found["ttft_p50"].outcome) == (None, Outcome.UNKNOWN)
