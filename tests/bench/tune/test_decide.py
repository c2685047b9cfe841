from collections.abc import Sequence

import numpy as np
import pytest

from bench.run.objectives import parse
from bench.tune.decide import (
    LEAST_PAIRED,
    Pairing,
    Ratio,
    Round,
    Trial,
    Verdict,
    Visit,
    aa_width,
    conclude,
    kept,
    ranked,
    ratio,
    stands_out,
    survivors,
)
from tests.support.results import completed, failed, result


def visit(good: int, requests: int = 100, wall_s: float = 50.0) -> Visit:
    return Visit([index < good for index in range(requests)], wall_s)


def trial(name: str, good: int, rung: int = 0) -> Trial:
    return Trial({"name": name}, rung, 0.0, visit(good))


def broken(name: str, rung: int = 0) -> Trial:
    return Trial({"name": name}, rung, 0.0, None, "no such option")


def pairing(name: str, *lows: float, aa: float = 0.05) -> Pairing:
    """A round for each lower end of an interval."""
    ratios = [Ratio(low + 0.1, low, low + 0.2, aa, 0.95) for low in lows]
    return Pairing({}, {"name": name}, 2.0, 0.0, [Round([visit(50)], [visit(60)], found) for found in ratios])


def test_a_visit_counts_requests_that_met_the_objectives() -> None:
    run = result([completed(ttft_ms=100.0), completed(ttft_ms=3000.0), failed()], wall_s=4.0)
    found = Visit.of(run, parse("ttft_p99<1s"))
    assert found.good == [True, False, False]
    assert found.wall_s == 4.0
    assert found.share == pytest.approx(1 / 3)


def test_the_better_half_goes_on_best_first() -> None:
    assert names(survivors([trial("a", 10), trial("b", 90), trial("c", 50), trial("d", 20)])) == ["b", "c"]
    assert names(survivors([trial("a", 10), trial("b", 90), trial("c", 50)])) == ["b", "c"]


def test_a_server_that_did_not_come_up_does_not_go_on() -> None:
    assert names(survivors([broken("a"), broken("b"), trial("c", 0)])) == ["c"]
    assert survivors([broken("a")]) == []


def test_finalists_are_ranked_by_their_longest_run() -> None:
    trials = [trial("a", 95), trial("b", 90), trial("c", 80), trial("a", 60, 1), trial("b", 70, 1)]
    assert names(ranked(trials)) == ["b", "a", "c"]
    assert names(ranked([*trials, broken("b", 1)])) == ["a", "c"]


def names(found: Sequence[object]) -> list[str]:
    return [changes["name"] for changes in found]  # type: ignore[index]


def test_a_clear_difference_wins() -> None:
    found = ratio([visit(50), visit(52)], [visit(95), visit(97)])
    assert found.value == pytest.approx(192.5 / 102.5)
    assert found.low < found.value < found.high
    assert found.won


def test_a_difference_below_the_width_of_two_visits_of_one_server_does_not_win() -> None:
    found = ratio([visit(30), visit(70)], [visit(85), visit(90)])
    assert 1.7 < found.value < 1 + found.aa_width
    assert not found.won


def test_the_width_is_relative_to_the_mean_of_the_visits() -> None:
    assert aa_width([Visit([True] * 90, 10.0), Visit([True] * 90, 10.0)]) == 0
    assert aa_width([visit(40), visit(60)]) == pytest.approx(20 / 50.5)


def test_a_side_without_a_good_request_has_a_ratio_all_the_same() -> None:
    found = ratio([visit(0), visit(0)], [visit(95), visit(97)])
    assert np.isfinite([found.value, found.low, found.high]).all()
    assert found.won


def test_a_longer_wall_time_is_less_goodput() -> None:
    found = ratio([visit(90, wall_s=100.0), visit(90, wall_s=100.0)], [visit(90), visit(90)])
    assert found.value == pytest.approx(2.0)


def test_an_interval_repeats_with_its_seed() -> None:
    sides = [visit(50), visit(52)], [visit(60), visit(58)]
    assert ratio(*sides, seed=3) == ratio(*sides, seed=3)


def test_nothing_measured_is_no_ratio() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        ratio([visit(1)], [visit(0, requests=0)])
    with pytest.raises(ValueError, match="nothing was measured"):
        ratio([], [visit(1)])


def test_equal_servers_seldom_win() -> None:
    rng = np.random.default_rng(0)

    def drawn() -> Visit:
        return Visit((rng.random(100) < rng.normal(0.8, 0.04)).tolist(), 50.0)

    won = sum(ratio([drawn(), drawn()], [drawn(), drawn()], seed).won for seed in range(60))
    assert won <= 3


def test_twice_the_goodput_stands_out_unless_it_may_be_chance_or_nothing_was_measured() -> None:
    def trial(good: int, requests: int = 40) -> Trial:
        return Trial({}, 0, 0.0, visit(good, requests))

    assert stands_out(trial(15), trial(40))
    assert not stands_out(trial(15), trial(25))
    assert not stands_out(trial(1), trial(3))
    assert not stands_out(trial(15), Trial({}, 0, 0.0, None, "did not come up"))


def test_none_better_takes_several_pairings() -> None:
    lost = [pairing(str(number), 0.9) for number in range(LEAST_PAIRED)]
    assert conclude([]) is Verdict.INSUFFICIENT
    assert conclude(lost[1:]) is Verdict.INSUFFICIENT
    assert conclude(lost) is Verdict.NONE_BETTER


def test_an_interval_has_to_lie_above_one_and_the_ratio_above_one_plus_the_width() -> None:
    assert not pairing("a", 0.99, 0.99, aa=0.05).won
    assert not pairing("a", 1.04, 1.04, aa=0.2).won
    assert pairing("a", 1.04, 1.04, aa=0.1).won


def test_a_candidate_has_to_win_twice() -> None:
    once, not_again, twice = pairing("a", 1.2), pairing("a", 1.2, 1.0), pairing("a", 1.2, 1.3)
    assert (once.open, once.won) == (True, False)
    assert (not_again.open, not_again.won) == (False, False)
    assert (twice.open, twice.won) == (False, True)
    assert twice.ratio is twice.rounds[1].ratio
    assert conclude([twice]) is Verdict.BETTER


def test_a_candidate_that_won_once_leaves_open_whether_none_is_better() -> None:
    lost = [pairing(str(number), 0.9) for number in range(LEAST_PAIRED)]
    assert conclude([*lost, pairing("a", 1.2)]) is Verdict.INSUFFICIENT
    assert conclude([*lost, pairing("a", 1.2, 1.0)]) is Verdict.NONE_BETTER


def test_the_last_that_won_is_kept() -> None:
    pairings = [pairing("a", 1.2, 1.2), pairing("b", 1.3, 1.2), pairing("c", 0.8)]
    assert kept(pairings) is pairings[1]
    assert kept(pairings[2:]) is None
