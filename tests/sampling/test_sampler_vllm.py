"""vLLM's own sampler draws from the reference's distribution, and the test would notice if it did not."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sampling.params import SamplingParams
from sampling.sampler import Vector, distribution

with warnings.catch_warnings():  # vLLM's imports warn of each other
    warnings.simplefilter("ignore")
    import vllm
    from vllm.platforms import current_platform
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.sampler import Sampler

    from bench.micro.engine_sampler import batch_of

DEVICE = torch.device(current_platform.device_type)
VOCABULARY = 48
DRAWS = 25_000
SEED = 20_240_917
LEAST_EXPECTED = 5  # draws in a cell, below which Pearson's statistic isn't distributed as chi-square
NORMAL_QUANTILE = 3.719  # of 1 - 1e-4

PROMPT = [3, 3, 7, 11]
OUTPUT = [7, 34, 34, 34, 40, 44]

PLAIN: dict[str, Any] = {}
PENALTIES: dict[str, Any] = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.6}
ALL: dict[str, Any] = {**PENALTIES, "temperature": 1.4, "min_p": 0.02, "top_k": 20, "top_p": 0.9}
CASES: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "cool": {"temperature": 0.7},
    "hot": {"temperature": 1.5},
    "top-k 1": {"top_k": 1},
    "top-k": {"top_k": 10},
    "top-k beyond the vocabulary's middle": {"top_k": 40, "temperature": 2.0},
    "top-p": {"top_p": 0.8},
    "small top-p": {"top_p": 0.2},
    "min-p": {"min_p": 0.1},
    "repetition penalty": {"repetition_penalty": 1.5},
    "repetition rewarded": {"repetition_penalty": 0.7},
    "frequency penalty": {"frequency_penalty": 0.7},
    "presence penalty": {"presence_penalty": 1.2},
    "negative penalties": {"frequency_penalty": -0.3, "presence_penalty": -0.5},
    "penalties": PENALTIES,
    "bias": {"logit_bias": {5: 3.0, 6: -100.0}},
    "cool top-p": {"temperature": 0.7, "top_p": 0.9},
    "hot min-p": {"temperature": 1.5, "min_p": 0.05},
    "top-k and top-p": {"top_k": 8, "top_p": 0.7},
    "min-p, top-k and top-p": {"min_p": 0.05, "top_k": 12, "top_p": 0.85},
    "all": ALL,
}


def logits() -> NDArray[np.float32]:
    return np.random.default_rng(7).normal(0, 2, VOCABULARY).astype(np.float32)


def reference(values: dict[str, Any]) -> Vector:
    return distribution(logits().astype(np.float64), SamplingParams(max_tokens=1, **values), PROMPT, OUTPUT)


def batch(values: dict[str, Any], rows: int) -> SamplingMetadata:
    return batch_of(vllm.SamplingParams(**values), rows, VOCABULARY, DEVICE, PROMPT, OUTPUT)


def draw(metadata: SamplingMetadata, rows: int) -> NDArray[np.intp]:
    """One token for each row, all of the same logits."""
    return sampled(np.tile(logits(), (rows, 1)), metadata)


def sampled(rows: NDArray[np.float32], metadata: SamplingMetadata) -> NDArray[np.intp]:
    tokens = Sampler()(torch.tensor(rows, device=DEVICE), metadata).sampled_token_ids
    return tokens.squeeze(1).cpu().numpy().astype(np.intp)


def draws(values: dict[str, Any]) -> NDArray[np.intp]:
    torch.manual_seed(SEED)
    return draw(batch(values, DRAWS), DRAWS)


def agrees(tokens: NDArray[np.intp], probabilities: Vector) -> bool:
    """Pearson's chi-square test: false with a chance of 1e-4 if the tokens are drawn from these probabilities.

    The rarest tokens share a cell. The critical value is Wilson and Hilferty's ("The Distribution of Chi-Square",
    1931): k (1 - 2 / 9k + z sqrt(2 / 9k))^3 for k degrees of freedom.
    """
    order = np.argsort(-probabilities)
    expected = probabilities[order] * len(tokens)
    found = np.bincount(tokens, minlength=len(probabilities))[order]
    if found[expected == 0].any():
        return False
    cells = int((expected >= LEAST_EXPECTED).sum())
    expected, found = (np.append(x[: cells - 1], x[cells - 1 :].sum()) for x in (expected, found))
    if cells == 1:
        return True
    statistic = ((found - expected) ** 2 / expected).sum()
    ninth = 2 / (9 * (cells - 1))
    return bool(statistic <= (cells - 1) * (1 - ninth + NORMAL_QUANTILE * ninth**0.5) ** 3)


@pytest.mark.parametrize("name", CASES)
def test_the_engine_draws_from_the_references_distribution(name: str) -> None:
    probabilities = reference(CASES[name])
    tokens = draws(CASES[name])
    assert (probabilities[tokens] > 0).all()
    assert agrees(tokens, probabilities)


def test_requests_with_seeds_of_their_own_draw_from_it_too() -> None:
    rows, steps = 250, DRAWS // 250
    generators = {row: torch.Generator(DEVICE).manual_seed(SEED + row) for row in range(rows)}
    metadata = replace(batch(ALL, rows), generators=generators)
    tokens = np.concatenate([draw(metadata, rows) for _ in range(steps)])
    assert agrees(tokens, reference(ALL))


def test_the_same_seed_draws_the_same_tokens() -> None:
    def answer(seed: int) -> list[int]:
        metadata = replace(batch(PLAIN, 1), generators={0: torch.Generator(DEVICE).manual_seed(seed)})
        return [int(draw(metadata, 1)[0]) for _ in range(50)]

    assert answer(1) == answer(1) != answer(2)


@pytest.mark.parametrize(
    ("drawn", "taken_for"),
    [
        (PLAIN, {"temperature": 1.2}),
        ({"temperature": 0.7}, {"temperature": 0.84}),
        ({"top_p": 0.8}, {"top_p": 0.75}),
        ({"top_k": 10}, {"top_k": 9}),
        ({"top_k": 10}, {"top_k": 11}),
        ({"min_p": 0.1}, {"min_p": 0.15}),
        ({"repetition_penalty": 1.5}, PLAIN),
        ({"frequency_penalty": 0.7}, {"presence_penalty": 0.7}),
        (ALL, {**ALL, "temperature": 1.4 * 1.2}),
    ],
)
def test_a_wrong_reference_is_found_out(drawn: dict[str, Any], taken_for: dict[str, Any]) -> None:
    assert not np.allclose(reference(drawn), reference(taken_for))
    assert not agrees(draws(drawn), reference(taken_for))


@pytest.mark.parametrize("values", [PLAIN, PENALTIES, {"logit_bias": {5: 3.0}}])
def test_greedy_requests_get_the_references_likeliest_token(values: dict[str, Any]) -> None:
    rows = np.random.default_rng(11).normal(0, 2, (500, VOCABULARY)).astype(np.float32)
    greedy = {**values, "temperature": 0.0}
    found = sampled(rows, batch(greedy, len(rows))).tolist()
    params = SamplingParams(max_tokens=1, **greedy)
    assert found == [int(distribution(row.astype(np.float64), params, PROMPT, OUTPUT).argmax()) for row in rows]


def test_greedy_and_random_requests_share_a_batch() -> None:
    torch.manual_seed(SEED)
    temperature = torch.ones(2 * DRAWS, device=DEVICE)
    temperature[::2] = 0
    tokens = draw(replace(batch(PENALTIES, 2 * DRAWS), temperature=temperature, all_random=False), 2 * DRAWS)
    assert set(tokens[::2]) == {int(reference(PENALTIES).argmax())}
    assert agrees(tokens[1::2], reference(PENALTIES))


def test_of_tokens_that_equal_the_last_of_top_k_the_engine_keeps_all_as_the_reference_does() -> None:
    values: dict[str, Any] = {"top_k": 2}
    equal = np.array([1.0, 0.0, 2.0, 1.0, 1.0, -1.0], dtype=np.float32)
    probabilities = distribution(equal.astype(np.float64), SamplingParams(max_tokens=1, **values))
    torch.manual_seed(SEED)
    metadata = batch_of(vllm.SamplingParams(**values), DRAWS, len(equal), DEVICE)
    tokens = sampled(np.tile(equal, (DRAWS, 1)), metadata)
    assert (probabilities > 0).tolist() == [True, False, True, True, True, False]
    assert agrees(tokens, probabilities)
