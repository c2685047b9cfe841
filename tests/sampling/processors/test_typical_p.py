"""Typical-p keeps the tokens whose surprise is nearest to the entropy."""

import numpy as np
import pytest
import torch
from transformers import TypicalLogitsWarper

from sampling.processors.typical_p import TypicalP
from sampling.shaping import Shaping
from tests.sampling.processors import oracle
from tests.sampling.processors.batch import kept, probabilities, random_logits, row, shape


@pytest.mark.parametrize("vocabulary", [5, 37, 2000])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_it_keeps_what_the_formula_keeps(vocabulary: int, p: float) -> None:
    for seed in range(10):
        (logits,) = random_logits(seed, vocabulary)
        (shaped,) = shape(TypicalP(), [logits], [row(typical_p=p)])
        oracle.typical_p(logits, p).check(logits, shaped)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_it_keeps_what_transformers_keeps(p: float) -> None:
    for seed in range(10):
        logits = random_logits(seed, 700)
        theirs = TypicalLogitsWarper(p)(torch.zeros(1, 1, dtype=torch.long), torch.from_numpy(logits)).numpy()
        (shaped,) = shape(TypicalP(), logits, [row(typical_p=p)])
        sure = oracle.typical_p(logits[0], p).sure
        np.testing.assert_array_equal(shaped[sure], theirs[0][sure])
        assert sure.sum() > 690


def test_a_token_too_likely_to_be_typical_is_out() -> None:
    # p = 1/2, 1/4, 1/8, 1/8, so in bits: surprise 1, 2, 3, 3 and H = 1/2 + 1/2 + 3/8 + 3/8 = 1.75.
    # Distances 0.75, 0.25, 1.25, 1.25: token 1 has a mass of 0.25, tokens 1 and 0 of 0.75.
    logits = [probabilities(0.5, 0.25, 0.125, 0.125)] * 3
    shaped = shape(TypicalP(), logits, [row(typical_p=p) for p in (0.2, 0.7, 0.8)])
    assert [kept(each) for each in shaped] == [[1], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize(("given", "left"), [((0.97, 0.01, 0.01, 0.01), [0]), ((0.4, 0.2, 0.2, 0.2), [1, 2, 3])])
def test_it_answers_as_llama_cpp_on_its_own_cases(given: tuple[float, ...], left: list[int]) -> None:
    (shaped,) = shape(TypicalP(), [probabilities(*given)], [row(typical_p=0.5)])
    assert kept(shaped) == left


def test_rows_of_a_batch_are_shaped_as_each_alone() -> None:
    logits, rows = random_logits(2, 300, rows=3), [row(typical_p=p) for p in (0.1, 0.5, 0.95)]
    together = shape(TypicalP(), logits, rows)
    for each, own, alone in zip(together, logits, rows, strict=True):
        np.testing.assert_array_equal(each, shape(TypicalP(), [own], [alone])[0])


def test_one_token_stays_however_little_is_asked_for() -> None:
    (shaped,) = shape(TypicalP(), [probabilities(0.5, 0.25, 0.25)], [row(typical_p=0.0)])
    assert len(kept(shaped)) == 1


def test_one_is_off() -> None:
    assert not TypicalP().wanted(Shaping(typical_p=1.0))
    assert TypicalP().wanted(Shaping(typical_p=0.99))
