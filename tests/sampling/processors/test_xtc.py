"""XTC takes out all likely tokens but the least of them, now and then, by a draw that is the request's own."""

import math

import numpy as np
import pytest

from sampling.processors.base import Row
from sampling.processors.xtc import Xtc
from sampling.shaping import Shaping
from tests.sampling.processors import oracle
from tests.sampling.processors.batch import OUT, Logits, kept, probabilities, random_logits, row, shape

FOUR = probabilities(0.4, 0.3, 0.2, 0.1)


def always(threshold: float) -> Row:
    return row(xtc_probability=1.0, xtc_threshold=threshold)


@pytest.mark.parametrize("vocabulary", [5, 37, 2000])
@pytest.mark.parametrize("threshold", [0.001, 0.05, 0.3])
def test_it_keeps_what_the_formula_keeps(vocabulary: int, threshold: float) -> None:
    for seed in range(10):
        (logits,) = random_logits(seed, vocabulary)
        (shaped,) = shape(Xtc(), [logits], [always(threshold)])
        oracle.xtc(logits, threshold).check(logits, shaped)


@pytest.mark.parametrize(("threshold", "left"), [(0.09, [3]), (0.19, [2, 3]), (0.29, [1, 2, 3]), (0.39, [0, 1, 2, 3])])
def test_it_answers_as_llama_cpp_on_its_own_cases(threshold: float, left: list[int]) -> None:
    (shaped,) = shape(Xtc(), [FOUR], [always(threshold)])
    assert kept(shaped) == left


def test_of_tokens_equally_likely_one_stays() -> None:
    (shaped,) = shape(Xtc(), [probabilities(0.5, 0.5, 0)], [always(0.5)])
    assert len(kept(shaped)) == 1


def test_a_threshold_of_zero_counts_no_token_that_is_out() -> None:
    (shaped,) = shape(Xtc(), [[OUT, 2.0, 1.0, OUT]], [always(0.0)])
    assert kept(shaped) == [2]


def happened(shaped: Logits) -> list[bool]:
    return [bool(math.isinf(each[0])) for each in shaped]


def test_it_happens_at_its_rate() -> None:
    rows = [row(seed=seed, xtc_probability=0.3) for seed in range(200)]
    count = 0
    for position in range(100):
        count += sum(happened(shape(Xtc(), [FOUR] * 200, rows)))
        for each in rows:
            each.output.append(position)
    # Binomial: 6000 expected, standard deviation sqrt(20,000 * 0.3 * 0.7) = 64.8.
    assert abs(count - 6000) < 4 * 64.8


def test_a_position_asked_for_again_has_the_same_answer_whoever_shares_the_step() -> None:
    one = row(seed=3, xtc_probability=0.5)
    others = [row(seed=seed, xtc_probability=0.5) for seed in (4, 5)]
    seen = set()
    for position in range(40):
        (alone,) = happened(shape(Xtc(), [FOUR], [one]))
        among = happened(shape(Xtc(), [FOUR] * 3, [others[0], one, others[1]]))
        assert among[1] is alone
        seen.add(alone)
        for each in (one, *others):
            each.output.append(position)
    assert seen == {True, False}


def test_rows_of_a_batch_are_shaped_as_each_alone() -> None:
    logits, rows = random_logits(2, 300, rows=3), [always(threshold) for threshold in (0.001, 0.02, 0.2)]
    together = shape(Xtc(), logits, rows)
    for each, own, alone in zip(together, logits, rows, strict=True):
        np.testing.assert_array_equal(each, shape(Xtc(), [own], [alone])[0])


def test_it_is_off_without_a_chance_or_with_a_threshold_that_no_two_tokens_reach() -> None:
    assert not Xtc().wanted(Shaping(xtc_probability=0.0))
    assert not Xtc().wanted(Shaping(xtc_probability=0.5, xtc_threshold=0.51))
    assert Xtc().wanted(Shaping(xtc_probability=0.5, xtc_threshold=0.5))
