"""Mirostat 2.0 bounds the surprise of what may come, and moves the bound by the surprise of what came."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sampling.processors.base import Row
from sampling.processors.mirostat import Mirostat
from sampling.shaping import Shaping
from tests.sampling.processors import oracle
from tests.sampling.processors.batch import OUT, Logits, kept, probabilities, random_logits, row, shape

SIX = probabilities(1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 32)  # surprise 1, 2, 3, 4, 5 and 5 bits


def miro(tau: float = 2.0, eta: float = 0.5, **more: Any) -> Row:
    return row(mirostat=2, mirostat_tau=tau, mirostat_eta=eta, **more)


def step(*rows: Row, logits: Sequence[float] = SIX) -> list[list[int]]:
    return [kept(each) for each in shape(Mirostat(), [logits] * len(rows), rows)]


@pytest.mark.parametrize("vocabulary", [5, 37, 2000])
@pytest.mark.parametrize("temperature", [0.4, 1.0, 1.7])
def test_it_keeps_what_the_formula_keeps_and_moves_as_it_does(vocabulary: int, temperature: float) -> None:
    random = np.random.default_rng(vocabulary)
    one, mu = miro(tau=1.5, eta=0.2, temperature=temperature), 3.0
    for position in range(30):
        (logits,) = random_logits(100 + position, vocabulary)
        (shaped,) = shape(Mirostat(), [logits], [one])
        oracle.mirostat(logits, temperature, mu).check(logits, shaped)
        token = int(random.choice(vocabulary, p=oracle.softmax(shaped / temperature)))
        one.output.append(token)
        mu -= 0.2 * (oracle.mirostat_observed(logits, temperature, mu, token) - 1.5)


def test_three_steps_by_hand() -> None:
    one = miro()
    # mu = 2 tau = 4: 1/32 is too surprising. What is left has a mass of 15/16, which makes all more likely.
    assert step(one) == [[0, 1, 2, 3]]
    one.output.append(3)
    # S = 4 + log2(15/16) = 3.907, mu = 4 - (3.907 - 2) / 2 = 3.047: 1/16 goes too, a mass of 7/8 is left.
    assert step(one) == [[0, 1, 2]]
    one.output.append(2)
    # S = 3 + log2(7/8) = 2.807, mu = 3.047 - 0.807 / 2 = 2.643; a mass of 3/4 is left.
    assert step(one) == [[0, 1]]
    one.output.append(0)
    # S = 1 + log2(3/4) = 0.585, mu = 2.643 + 1.415 / 2 = 3.351.
    assert step(one) == [[0, 1, 2]]


def test_the_likeliest_stays_whatever_the_bound() -> None:
    assert step(miro(tau=0.1)) == [[0]]


def test_a_position_asked_for_again_moves_nothing() -> None:
    once, thrice = miro(), miro()
    step(once)
    for _ in range(3):
        step(thrice, logits=[0.0] * 6)
    step(thrice)
    for token, left in ((3, [0, 1, 2]), (2, [0, 1])):  # as by hand above
        for one in (once, thrice):
            one.output.append(token)
        assert step(once) == step(thrice) == step(thrice) == [left]


def test_a_request_computed_anew_goes_on_from_where_it_was() -> None:
    steady, preempted = miro(), miro()
    for token in (3, 2):
        step(steady, preempted)
        steady.output.append(token)
        preempted.output.append(token)
    preempted.output = []  # both tokens are known, the first observed
    step(preempted, logits=[0.0] * 6)
    preempted.output = [3]
    step(preempted)
    preempted.output = [3, 2]
    close = probabilities(0.5, 2**-2.7, 0.5 - 2**-2.7)  # mu is 2.643, as by hand above
    assert step(steady, logits=close) == step(preempted, logits=close) == [[0, 2]]


def test_a_token_that_was_forced_upon_the_request_moves_nothing() -> None:
    one = miro()
    assert step(one) == [[0, 1, 2, 3]]
    one.output.append(5)
    assert step(one) == [[0, 1, 2, 3]]


def test_rows_come_and_go_without_touching_one_another() -> None:
    alone, steady, early, late = miro(), miro(), miro(tau=1.0), miro(tau=3.0, temperature=0.7)
    batches: list[list[Row]] = [[early, steady], [steady, early], [early, late, steady], [late, steady], [steady]]
    for batch, token in zip(batches, (3, 2, 0, 1, 0), strict=True):
        assert step(*batch)[batch.index(steady)] == step(alone)[0]
        for one in (alone, *batch):
            one.output.append(token)


def test_a_greedy_row_stays_as_it_is_beside_others() -> None:
    logits = random_logits(4, 50, rows=2)
    greedy, other = shape(Mirostat(), logits, [miro(temperature=0.0), miro(tau=0.5)])
    np.testing.assert_array_equal(greedy, logits[0])
    assert len(kept(other)) < len(kept(logits[1]))


@pytest.mark.parametrize("tau", [2.0, 4.0])
def test_the_mean_surprise_comes_near_the_target(tau: float) -> None:
    zipf: Logits = -np.log(np.arange(1, 1001, dtype=np.float32))
    random = np.random.default_rng(11)
    one, surprises = miro(tau=tau, eta=0.1), []
    for _ in range(2000):
        (shaped,) = shape(Mirostat(), [zipf], [one])
        token = int(random.choice(1000, p=oracle.softmax(shaped)))
        surprises.append(float(oracle.surprise(shaped)[token]) / math.log(2))
        one.output.append(token)
    assert np.mean(surprises) == pytest.approx(tau, abs=0.1)


def test_huge_and_missing_logits_leave_the_bound_finite() -> None:
    one = miro(temperature=0.01)
    for token in (0, 0, 2):
        shaped = shape(Mirostat(), [[1e4, -1e4, 1e4, OUT]], [one])[0]
        assert kept(shaped) == [0, 2]
        one.output.append(token)


def test_only_the_second_version_is_there() -> None:
    assert Mirostat().wanted(Shaping(mirostat=2))
    assert not Mirostat().wanted(Shaping())
