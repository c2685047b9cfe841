"""Dynamic temperature: colder where the model is sure, hotter where it isn't."""

import math

import numpy as np
import pytest

from sampling.processors.dynatemp import DynamicTemperature
from sampling.shaping import Shaping
from tests.sampling.processors import oracle
from tests.sampling.processors.batch import OUT, kept, probabilities, random_logits, row, shape


@pytest.mark.parametrize("vocabulary", [5, 37, 2000])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 3.0])
def test_after_the_engines_temperature_it_is_the_formulas(vocabulary: int, exponent: float) -> None:
    for seed in range(10):
        (logits,) = random_logits(seed, vocabulary)
        one = row(temperature=0.8, dynatemp_range=0.5, dynatemp_exponent=exponent)
        (shaped,) = shape(DynamicTemperature(), [logits], [one])
        expected = logits / oracle.dynamic_temperature(logits, 0.8, 0.5, exponent)
        np.testing.assert_allclose(shaped / 0.8, expected, rtol=1e-4)


def test_by_hand() -> None:
    # p = 1/2, 1/4, 1/4: H = 1.5 bits of log2(3) = 1.585, so 0.9464; squared 0.8957. T' = 0.5 + (1.5 - 0.5) * 0.8957.
    logits = [probabilities(0.5, 0.25, 0.25, 0)]
    (shaped,) = shape(DynamicTemperature(), logits, [row(dynatemp_range=0.5, dynatemp_exponent=2.0)])
    np.testing.assert_allclose(shaped, np.array(logits[0]) / 1.3957, rtol=1e-4)


def test_the_surest_row_has_the_lowest_temperature_and_the_least_sure_the_highest() -> None:
    sure, unsure = [12.0, -12.0, -12.0, -12.0], [-1.0, -1.0, -1.0, -1.0]
    shaped = shape(DynamicTemperature(), [sure, unsure], [row(dynatemp_range=0.75)] * 2)
    np.testing.assert_allclose(shaped, np.array([sure, unsure]) / [[0.25], [1.75]], rtol=1e-4)


def test_at_a_temperature_of_zero_only_the_largest_stays() -> None:
    (shaped,) = shape(DynamicTemperature(), [[0.0, 500.0, 0.0, OUT]], [row(dynatemp_range=2.0)])
    assert kept(shaped) == [1]


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_a_token_alone_stays_as_it_is(exponent: float) -> None:
    logits = [[OUT, 3.7, OUT]]
    one = row(temperature=0.6, dynatemp_range=0.6, dynatemp_exponent=exponent)
    np.testing.assert_array_equal(shape(DynamicTemperature(), logits, [one]), np.float32(logits))


def test_a_greedy_row_stays_as_it_is() -> None:
    logits = random_logits(5, 100, rows=2)
    rows = [row(temperature=temperature, dynatemp_range=0.5) for temperature in (0.0, 1.0)]
    greedy, other = shape(DynamicTemperature(), logits, rows)
    np.testing.assert_array_equal(greedy, logits[0])
    assert not np.array_equal(other, logits[1])


def test_rows_of_a_batch_are_shaped_as_each_alone() -> None:
    logits = random_logits(2, 300, rows=3)
    values = ((1.0, 1.0, 1.0), (0.7, 0.2, 2.0), (2.0, 3.0, 0.5))
    rows = [row(temperature=t, dynatemp_range=r, dynatemp_exponent=e) for t, r, e in values]
    together = shape(DynamicTemperature(), logits, rows)
    for each, own, alone in zip(together, logits, rows, strict=True):
        np.testing.assert_allclose(each, shape(DynamicTemperature(), [own], [alone])[0], rtol=1e-6)


def test_a_range_of_zero_is_off() -> None:
    assert not DynamicTemperature().wanted(Shaping(dynatemp_range=0.0))
    assert DynamicTemperature().wanted(Shaping(dynatemp_range=0.1))


def test_the_entropy_of_what_is_left_counts_not_that_of_the_vocabulary() -> None:
    # Two tokens alike have all the entropy that two allow, however many are out: T' = 1.5.
    (shaped,) = shape(DynamicTemperature(), [[3.0, 3.0, *[OUT] * 98]], [row(dynatemp_range=0.5)])
    assert shaped[0] == pytest.approx(3.0 / 1.5)
    assert math.isinf(shaped[2])
