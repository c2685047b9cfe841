"""The reference sampler against values worked out by hand. Logits are logarithms of the probabilities meant."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling.params import SamplingParams
from sampling.sampler import Vector, distribution, keep_top_p, mass_before, penalize, sample

FOUR = (0.5, 0.3, 0.15, 0.05)


def params(**values: Any) -> SamplingParams:
    return SamplingParams(max_tokens=1, **values)


def logits(*probabilities: float) -> Vector:
    return np.log(np.array(probabilities))


def shaped(probabilities: tuple[float, ...], **values: Any) -> list[float]:
    return [round(float(p), 6) for p in distribution(logits(*probabilities), params(**values))]


def test_without_parameters_the_distribution_is_the_models() -> None:
    assert shaped(FOUR) == list(FOUR)


@pytest.mark.parametrize("temperature", [0.0, 9e-6])
def test_at_temperature_zero_the_likeliest_token_is_certain(temperature: float) -> None:
    assert shaped((0.2, 0.5, 0.3), temperature=temperature) == [0, 1, 0]


def test_the_first_of_equally_likely_tokens_is_the_greedy_one() -> None:
    assert shaped((0.2, 0.4, 0.4), temperature=0) == [0, 1, 0]


def test_half_the_temperature_squares_the_probabilities() -> None:
    assert shaped((0.1, 0.2, 0.7), temperature=0.5) == [round(p / 0.54, 6) for p in (0.01, 0.04, 0.49)]


def test_a_bias_is_added_and_can_turn_the_greedy_choice() -> None:
    assert shaped((0.2, 0.5, 0.3), temperature=0, logit_bias={0: 1.0}) == [1, 0, 0]


def test_the_repetition_penalty_divides_positive_logits_and_multiplies_negative_ones() -> None:
    found = penalize(np.array([2.0, -2.0, 1.0, 0.0]), params(repetition_penalty=2), prompt=[0, 0], output=[1])
    assert found.tolist() == [1, -4, 1, 0]


def test_frequency_and_presence_penalties_count_the_output_alone() -> None:
    values = params(frequency_penalty=0.5, presence_penalty=0.25)
    found = penalize(np.array([2.0, -2.0, 1.0]), values, prompt=[0], output=[1, 1, 2])
    assert found.tolist() == [2, -3.25, 0.25]


def test_the_repetition_penalty_comes_before_the_subtracted_ones() -> None:
    values = params(repetition_penalty=2, frequency_penalty=0.5, presence_penalty=0.25)
    assert penalize(np.array([3.0, 1.0]), values, prompt=[], output=[0]).tolist() == [0.75, 1]


def test_penalties_turn_the_greedy_choice() -> None:
    found = distribution(np.array([2.0, 1.5]), params(temperature=0, repetition_penalty=2), prompt=[0])
    assert found.tolist() == [0, 1]


def test_min_p_is_relative_to_the_likeliest_token() -> None:
    assert shaped(FOUR, min_p=0.2) == [round(p / 0.95, 6) for p in (0.5, 0.3, 0.15)] + [0]


def test_min_p_sees_the_probabilities_after_temperature() -> None:
    # Squared and normalised: 0.685, 0.247, 0.062, 0.007; four tenths of the first are more than the second has.
    assert shaped(FOUR, min_p=0.4, temperature=0.5) == [1, 0, 0, 0]
    assert shaped(FOUR, min_p=0.4) == [0.625, 0.375, 0, 0]


def test_top_k_keeps_what_equals_the_last_it_keeps() -> None:
    assert shaped((0.4, 0.2, 0.2, 0.2), top_k=2) == [0.4, 0.2, 0.2, 0.2]
    assert shaped((0.1, 0.4, 0.2, 0.3), top_k=2) == [0, round(0.4 / 0.7, 6), 0, round(0.3 / 0.7, 6)]


@pytest.mark.parametrize("k", [-1, 0, 4, 99])
def test_a_top_k_without_a_meaning_keeps_all(k: int) -> None:
    assert shaped(FOUR, top_k=k) == list(FOUR)


def test_top_p_keeps_the_token_that_crosses_the_threshold() -> None:
    assert shaped(FOUR, top_p=0.49) == [1, 0, 0, 0]
    assert shaped(FOUR, top_p=0.51) == [0.625, 0.375, 0, 0]


def test_however_small_top_p_is_the_likeliest_token_stays() -> None:
    assert shaped((0.3, 0.3, 0.4), top_p=1e-9) == [0, 0, 1]


def test_of_equal_tokens_top_p_keeps_the_later_ones() -> None:
    assert shaped((0.25, 0.25, 0.25, 0.25), top_p=0.6) == [0, *[round(1 / 3, 6)] * 3]


def test_top_p_of_one_keeps_every_token() -> None:
    values = np.array([0.0, -40.0, -80.0])
    assert np.isfinite(keep_top_p(values, 1.0)).all()


def test_each_step_sees_what_the_one_before_left() -> None:
    # Of the two that top-k leaves the first has 4/7, enough for top-p alone; of all four it had 0.4.
    assert shaped((0.4, 0.3, 0.2, 0.1), top_k=2, top_p=0.56) == [1, 0, 0, 0]
    assert shaped((0.4, 0.3, 0.2, 0.1), top_p=0.56) == [round(4 / 7, 6), round(3 / 7, 6), 0, 0]
    # Min-p takes the last two out before top-k could count them.
    assert shaped((0.4, 0.3, 0.2, 0.1), min_p=0.6, top_k=3) == [round(4 / 7, 6), round(3 / 7, 6), 0, 0]


def test_a_token_that_is_out_already_stays_out() -> None:
    with np.errstate(divide="ignore"):
        assert shaped((0.5, 0.0, 0.5), top_p=0.99, min_p=0.1, top_k=3, temperature=2) == [0.5, 0, 0.5]


def test_the_mass_before_a_token_is_that_of_the_likelier_ones() -> None:
    assert mass_before(logits(0.2, 0.5, 0.3)).round(9).tolist() == [0.8, 0, 0.5]


def test_draws_depend_on_the_generator_alone_and_never_give_an_impossible_token() -> None:
    probabilities = np.array([0.0, 0.7, 0.0, 0.3, 0.0])
    first, second = (
        [sample(probabilities, rng) for _ in range(200)] for rng in (np.random.default_rng(1), np.random.default_rng(1))
    )
    assert first == second
    assert set(first) == {1, 3}
    assert 100 < first.count(1) < 180


@given(
    # Apart by more than what a division by the temperature rounds, or equal.
    values=st.lists(st.integers(-300, 300).map(lambda tenths: tenths / 10), min_size=1, max_size=30),
    temperature=st.floats(0.1, 3),
    min_p=st.floats(0, 1),
    top_k=st.integers(0, 40),
    top_p=st.floats(0.01, 1),
)
def test_whatever_is_asked_the_likelier_of_two_tokens_stays_so_and_the_likeliest_stays_in(
    values: list[float], temperature: float, min_p: float, top_k: int, top_p: float
) -> None:
    wanted = params(temperature=temperature, min_p=min_p, top_k=top_k, top_p=top_p)
    found = distribution(np.array(values), wanted)
    assert found.sum() == pytest.approx(1)
    order = np.lexsort((np.arange(len(values)), values))
    assert found[order[-1]] > 0
    assert (np.diff(found[order]) >= -1e-12).all()
