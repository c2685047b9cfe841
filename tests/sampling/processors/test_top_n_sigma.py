"""Top-n-sigma keeps what is within n standard deviations of the largest logit."""

import numpy as np
import pytest

from sampling.processors.top_n_sigma import TopNSigma
from sampling.shaping import Shaping
from tests.sampling.processors import oracle
from tests.sampling.processors.batch import OUT, kept, probabilities, random_logits, row, shape


@pytest.mark.parametrize("vocabulary", [5, 37, 2000])
@pytest.mark.parametrize("n", [0.3, 1.0, 2.5])
def test_it_keeps_what_the_formula_keeps(vocabulary: int, n: float) -> None:
    for seed in range(10):
        (logits,) = random_logits(seed, vocabulary)
        (shaped,) = shape(TopNSigma(), [logits], [row(top_n_sigma=n)])
        oracle.top_n_sigma(logits, n).check(logits, shaped)


def test_what_is_out_counts_neither_for_the_mean_nor_for_the_deviation() -> None:
    # Of 0, 1, 2, 3, 4: mean 2, variance (4 + 1 + 0 + 1 + 4) / 5 = 2, deviation 1.414; the lowest for n = 1, 1.4 and 1.5
    # is 2.586, 2.020 and 1.879. Divided by 4 the deviation would be 1.581, and for n = 1.4 the lowest 1.786.
    shaped = shape(TopNSigma(), [[OUT, 0, 1, 2, 3, 4, OUT]] * 3, [row(top_n_sigma=n) for n in (1.0, 1.4, 1.5)])
    assert [kept(each) for each in shaped] == [[4, 5], [4, 5], [3, 4, 5]]


@pytest.mark.parametrize(("n", "left"), [(1.0, [0, 0, 0.428571, 0.571429]), (3.0, [0.1, 0.2, 0.3, 0.4])])
def test_it_answers_as_llama_cpp_on_its_own_cases(n: float, left: list[float]) -> None:
    (shaped,) = shape(TopNSigma(), [probabilities(0.1, 0.2, 0.3, 0.4)], [row(top_n_sigma=n)])
    np.testing.assert_allclose(oracle.softmax(shaped), left, atol=1e-5)


def test_temperature_makes_no_difference() -> None:
    logits = random_logits(1, 500)
    hot, cold = shape(TopNSigma(), np.concatenate([logits / 4, logits * 4]), [row(top_n_sigma=1.1)] * 2)
    assert kept(hot) == kept(cold)


def test_rows_of_a_batch_are_shaped_as_each_alone() -> None:
    logits, rows = random_logits(2, 300, rows=3), [row(top_n_sigma=n) for n in (0.5, 1.0, 2.0)]
    together = shape(TopNSigma(), logits, rows)
    for each, own, alone in zip(together, logits, rows, strict=True):
        np.testing.assert_array_equal(each, shape(TopNSigma(), [own], [alone])[0])


def test_zero_is_off() -> None:
    assert not TopNSigma().wanted(Shaping(top_n_sigma=0.0))
    assert TopNSigma().wanted(Shaping(top_n_sigma=0.1))
