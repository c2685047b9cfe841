import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from bench.arms import ArmError
from bench.tune.decide import LEAST_PAIRED, MOST_PAIRED, Verdict
from bench.tune.search import STRESS
from bench.tune.space import Changes, key
from tests.bench.tune.simulated import SEQUENCES, Stand, plan, searched, tuner

DEFAULT = {"engine": {"args": {"max_num_seqs": 64}}}
BAD_DEFAULT = {"engine": {"args": {"max_num_seqs": 2}}}


def all_alike(changes: Changes) -> int:
    return 8


def more_with_more_sequences(changes: Changes) -> int:
    return 16 if changes.get(SEQUENCES) == 128 else 8


def as_many_as_sequences(changes: Changes) -> int:
    return min(int(changes.get(SEQUENCES, 2)), 12)


def test_a_planted_better_setting_is_found() -> None:
    record = searched(Stand(more_with_more_sequences), plan(), DEFAULT)
    assert record.verdict is Verdict.BETTER
    assert record.winner is not None and record.winner.changes[SEQUENCES] == 128
    assert len(record.winner.rounds) == 2
    assert all(each.ratio.low > 1 and each.ratio.value > 1 + each.ratio.aa_width for each in record.winner.rounds)


def test_the_default_is_kept_where_nothing_is_better() -> None:
    """But by a chance of one in twenty: of forty such searches two find something."""
    records = [searched(Stand(all_alike), plan(seed=seed), DEFAULT) for seed in range(10)]
    kept = [record for record in records if record.verdict is Verdict.NONE_BETTER]
    assert len(kept) >= 9
    assert all(record.winner is None for record in kept)
    assert all(LEAST_PAIRED <= len(record.pairings) <= MOST_PAIRED for record in records)


def test_a_planted_bad_default_is_beaten() -> None:
    record = searched(Stand(as_many_as_sequences), plan(), BAD_DEFAULT)
    assert record.verdict is Verdict.BETTER
    assert record.winner is not None and record.winner.changes[SEQUENCES] >= 8


def test_a_winner_is_the_incumbent_from_then_on_with_an_edge_of_its_own() -> None:
    record = searched(Stand(as_many_as_sequences), plan(), BAD_DEFAULT)
    first = next(at for at, pairing in enumerate(record.pairings) if pairing.won)
    winner, after = record.pairings[first], record.pairings[first + 1]
    assert after.incumbent == winner.changes
    assert record.edges[1].changes == winner.changes
    assert record.edges[1].rate > 2 * record.edges[0].rate
    assert after.rate >= STRESS * record.edges[1].rate * 0.999


def test_what_stands_out_in_its_first_trial_is_paired_before_anything_else_is_tried() -> None:
    stand = Stand(as_many_as_sequences)
    record = searched(stand, plan(), BAD_DEFAULT)
    winner = next(pairing for pairing in record.pairings if pairing.won)
    before = [trial for trial in record.trials if trial.at_s < winner.at_s]
    assert winner.changes == before[-1].changes
    assert len(before) < len(record.trials) / 2
    assert {trial.rung for trial in before} == {0}


def test_after_a_win_all_begins_anew_over_it_at_the_winners_own_rate() -> None:
    record = searched(Stand(as_many_as_sequences), plan(), BAD_DEFAULT)
    winner = next(pairing for pairing in record.pairings if pairing.won)
    after = [trial for trial in record.trials if trial.at_s > winner.at_s]
    assert all(pairing.rate >= winner.rate for pairing in record.pairings[record.pairings.index(winner) :])
    assert after[0].changes == winner.changes  # for the others to be held to
    assert all(winner.changes.keys() <= trial.changes.keys() for trial in after)
    assert len({key(trial.changes) for trial in after}) > 8
    rungs = {trial.rung for trial in after}
    assert rungs == {0, 1}


def test_a_finalist_is_tried_over_the_one_that_has_won_before_it() -> None:
    def together(changes: Changes) -> int:
        return 6 + 5 * (SEQUENCES in changes) + 5 * ("admission.max_wait" in changes)

    record = searched(Stand(together), plan(seed=3), DEFAULT)
    winners = [pairing for pairing in record.pairings if pairing.won]
    assert winners
    for pairing in record.pairings[record.pairings.index(winners[0]) + 1 :]:
        assert winners[0].changes.keys() <= pairing.changes.keys()


def test_settings_that_meet_hardly_any_rate_are_compared_at_what_they_complete() -> None:
    """At their own edge requests came so seldom that a planted bad default outlasted its budget."""
    record = searched(Stand(as_many_as_sequences), plan(), BAD_DEFAULT)
    edge, first = record.edges[0], record.pairings[0]
    assert first.rate >= STRESS * edge.rate * 0.999
    assert first.rate >= 2 / 1.1  # two places that serve each request within a second or so


def test_a_budget_for_a_few_pairings_is_insufficient_evidence() -> None:
    whole = searched(Stand(all_alike), plan(), DEFAULT)
    between = (whole.pairings[2].at_s + whole.pairings[3].at_s) / 2
    asked = plan(between)
    unhurried = replace(asked, rungs=[replace(rung, until=1.0) for rung in asked.rungs])
    record = searched(Stand(all_alike), unhurried, DEFAULT)
    assert 0 < len(record.pairings) < LEAST_PAIRED
    assert record.verdict is Verdict.INSUFFICIENT
    assert record.winner is None and "budget" in record.ended


@pytest.mark.parametrize("budget_s", [1.0, 60.0, 300.0, 900.0, 1700.0])
def test_the_budget_is_held_within_one_trial(budget_s: float) -> None:
    stand = Stand(all_alike)
    record = searched(stand, plan(budget_s), DEFAULT)
    longest = 60.0  # of a run here, a start included
    assert stand.seconds < budget_s + longest
    assert record.edges and record.ended == "the budget was used up"


def test_an_interrupt_keeps_what_was_learned() -> None:
    stand = Stand(all_alike, interrupt_at=30)
    lines: list[str] = []
    searching = tuner(stand, plan(), DEFAULT, lines)
    with suppress(asyncio.CancelledError):
        asyncio.run(searching.run())
    record = searching.record
    assert record.edges and record.trials and record.ended == "interrupted"
    assert record.verdict is Verdict.INSUFFICIENT
    assert len(lines) == len(record.edges) + len(record.trials) + len(record.pairings)
    assert record.seconds > 0


def test_a_candidate_whose_server_does_not_come_up_is_a_finding_and_is_never_paired() -> None:
    record = searched(Stand(lambda changes: 0 if "admission.max_wait" in changes else 8), plan(), DEFAULT)
    broken = [trial for trial in record.trials if "admission.max_wait" in trial.changes]
    assert broken and all(trial.error == "no such option" and trial.score == 0 for trial in broken)
    assert not any("admission.max_wait" in pairing.changes for pairing in record.pairings)
    assert record.verdict is Verdict.NONE_BETTER


def test_settings_that_do_not_come_up_as_they_are_are_an_error() -> None:
    with pytest.raises(ArmError):
        searched(Stand(lambda changes: 0), plan(), DEFAULT)


def test_pairings_visit_a_b_b_a_with_two_hundred_requests_a_side_and_equal_ones_on_the_way_there() -> None:
    stand = Stand(all_alike)
    record = searched(stand, plan(), DEFAULT)
    assert not any(pairing.open or len(pairing.rounds) > 1 for pairing in record.pairings)
    visits = stand.put_on[-4 * len(record.pairings) :]
    for at, pairing in enumerate(record.pairings):
        sides, specs = zip(*visits[4 * at : 4 * at + 4], strict=True)
        assert [key(side) for side in sides] == [key(c) for c in ({}, pairing.changes, pairing.changes, {})]
        assert specs[0].seed == specs[1].seed != specs[2].seed == specs[3].seed
        assert specs[0].requests + specs[3].requests >= 200 <= specs[1].requests + specs[2].requests


def test_half_of_the_candidates_get_a_longer_trial() -> None:
    record = searched(Stand(more_with_more_sequences), plan(), DEFAULT)
    candidates = [trial for trial in record.trials if trial.changes]
    short, long = ([trial for trial in candidates if trial.rung == rung] for rung in (0, 1))
    assert len(short) == 16 and len(long) == 8
    longer = {key(trial.changes) for trial in long}
    worst_kept = min(trial.score for trial in short if key(trial.changes) in longer)
    assert all(trial.score <= worst_kept for trial in short if key(trial.changes) not in longer)
    assert all(trial.visit and len(trial.visit.good) == 80 for trial in long)


def test_a_search_repeats_with_its_seed() -> None:
    first, second = (searched(Stand(all_alike), plan(), DEFAULT) for _ in range(2))
    assert [trial.changes for trial in first.trials] == [trial.changes for trial in second.trials]
    assert [pairing.ratio for pairing in first.pairings] == [pairing.ratio for pairing in second.pairings]


def test_a_fast_server_gets_more_requests_so_that_a_queue_has_time_to_grow() -> None:
    asked = replace(plan(), least_s=20.0)
    assert asked.at(2.0, 100, 0).requests == 100
    spec = asked.at(50.0, 100, 0)
    assert (spec.requests, spec.warmup) == (1000, 200)
