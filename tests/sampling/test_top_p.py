"""The sort-free top-p keeps what the float64 reference keeps, but for tokens within 1e-6 of the threshold."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sampling.sampler import mass_before
from sampling.top_p import apply_top_p

VOCABULARY = 152_064
NEAR = 1e-6

Logits = NDArray[np.float32]


def kept(rows: Logits, *top_p: float) -> NDArray[np.bool_]:
    """Which tokens stay in; those that do are unchanged."""
    shaped = apply_top_p(torch.tensor(rows), torch.tensor(top_p)).numpy()
    stays = shaped > -np.inf
    assert (shaped[stays] == rows[stays]).all()
    return stays


def assert_as_the_reference(logits: Logits, p: float) -> None:
    p = float(np.float32(p))
    stays = kept(logits[None], p)[0]
    before = mass_before(logits.astype(np.float64))
    possible = logits > -np.inf
    assert stays[possible & (before < p - NEAR)].all()
    assert not stays[before >= p + NEAR].any()
    assert stays[logits == logits.max()].any()


def spread(rng: np.random.Generator) -> Logits:
    return rng.normal(0, 2, VOCABULARY).astype(np.float32)


def rounded(rng: np.random.Generator) -> Logits:
    """As a model in bfloat16 gives them: many equal ones."""
    return torch.tensor(spread(rng)).bfloat16().float().numpy()


def peaked(rng: np.random.Generator) -> Logits:
    return np.float32(-1.5) * np.log(rng.permutation(VOCABULARY) + 1).astype(np.float32)


def nearly_equal(rng: np.random.Generator) -> Logits:
    return rng.uniform(0, 1e-3, VOCABULARY).astype(np.float32)


def equal(rng: np.random.Generator) -> Logits:
    return np.full(VOCABULARY, 3.5, dtype=np.float32)


def one_above_a_crowd(rng: np.random.Generator) -> Logits:
    """Half of the mass in one token, the rest so close together that one bin holds it all."""
    logits = rng.uniform(0, 1e-4, VOCABULARY).astype(np.float32)
    logits[777] = np.log(VOCABULARY)
    return logits


def mostly_out(rng: np.random.Generator) -> Logits:
    logits = spread(rng)
    logits[rng.random(VOCABULARY) < 0.9] = -np.inf
    return logits


@pytest.mark.parametrize("p", [1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("make", [spread, rounded, peaked, nearly_equal, equal, one_above_a_crowd, mostly_out])
def test_a_large_vocabulary_is_cut_as_by_the_reference(make: Callable[[np.random.Generator], Logits], p: float) -> None:
    assert_as_the_reference(make(np.random.default_rng(4)), p)


@given(
    logits=st.lists(
        st.one_of(st.floats(-40, 40, width=32), st.sampled_from([-1.0, 0.0, 0.5, -float("inf")])),
        min_size=1,
        max_size=60,
    ).filter(lambda values: max(values) > -float("inf")),
    p=st.floats(1e-6, 1),
)
def test_any_small_vocabulary_is_cut_as_by_the_reference(logits: list[float], p: float) -> None:
    assert_as_the_reference(np.array(logits, dtype=np.float32), p)


def test_of_equal_tokens_no_more_stay_than_are_needed_and_these_are_the_last() -> None:
    stays = kept(np.array([[1, 1, 5, 1, 1]], dtype=np.float32), 0.985)
    # exp(5) / (exp(5) + 4 exp(1)) is 0.932, each of the others 0.017: three and a bit are missing, hence all four.
    assert stays.tolist() == [[True] * 5]
    stays = kept(np.array([[1, 1, 5, 1, 1]], dtype=np.float32), 0.96)
    assert stays.tolist() == [[False, False, True, True, True]]


def test_each_row_has_its_own_threshold_and_one_with_top_p_1_is_left_alone() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    stays = kept(np.stack([row, row, row]), 0.6, 1.0, 0.1)
    assert stays.sum(axis=1).tolist() == [2, 4, 1]


def test_no_rows_are_no_trouble() -> None:
    assert kept(np.zeros((0, 8), dtype=np.float32)).shape == (0, 8)


def test_the_logits_are_changed_in_place() -> None:
    logits = torch.tensor([[5.0, 0.0]])
    assert apply_top_p(logits, torch.tensor([0.5])) is logits
    assert logits.tolist() == [[5.0, -float("inf")]]
