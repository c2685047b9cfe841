"""The reference sampler: what the next token is drawn from, in float64, without an engine.

It is the oracle for the engine's own sampler and keeps its order: bias, penalties, temperature, min-p, top-k, top-p.
Each step sees what the one before left, and takes a token out with -inf.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sampling.params import SamplingParams

Vector = NDArray[np.float64]

GREEDY_BELOW = 1e-5
"""A temperature below this means the likeliest token (vLLM, v1/sample/sampler.py)."""


def distribution(
    logits: Vector, params: SamplingParams, prompt: Sequence[int] = (), output: Sequence[int] = ()
) -> Vector:
    """The probability of each token after `prompt` and `output`: [vocabulary], from logits [vocabulary].

    Greedy puts all of it on the likeliest token, the first of equals. What `params` leaves open changes nothing.
    """
    shaped = penalize(add_bias(logits.astype(np.float64), params.logit_bias), params, prompt, output)
    temperature = 1.0 if params.temperature is None else params.temperature
    if temperature < GREEDY_BELOW:
        certain = np.zeros(len(shaped))
        certain[shaped.argmax()] = 1.0
        return certain
    shaped = keep_min_p(shaped / temperature, params.min_p or 0.0)
    shaped = keep_top_k(shaped, params.top_k or 0)
    return softmax(keep_top_p(shaped, 1.0 if params.top_p is None else params.top_p))


def sample(probabilities: Vector, rng: np.random.Generator) -> int:
    """Draws a token."""
    return int(rng.choice(len(probabilities), p=probabilities))


def softmax(logits: Vector) -> Vector:
    """exp(x_i) / sum_j exp(x_j); 0 for -inf."""
    weights: Vector = np.exp(logits - logits.max())
    return weights / float(weights.sum())


def add_bias(logits: Vector, bias: Mapping[int, float]) -> Vector:
    """x_i + b_i (OpenAI's API reference, `logit_bias`)."""
    biased = logits.copy()
    for token, added in bias.items():
        biased[token] += added
    return biased


def penalize(logits: Vector, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]) -> Vector:
    """The logits of tokens that were there before, lowered.

    Repetition, for tokens of prompt and output: x / r where x > 0, else x r (Keskar et al., "CTRL", 2019, section 4.1,
    whose plain division would raise a negative logit). Frequency and presence, for the output's: x - c f - [c > 0] p,
    where c is how often the token occurs (OpenAI's API reference).
    """
    counts = np.bincount(np.asarray(output, dtype=np.intp), minlength=len(logits))
    seen = counts > 0
    seen[list(prompt)] = True
    repetition = 1.0 if params.repetition_penalty is None else params.repetition_penalty
    repeated = np.where(logits > 0, logits / repetition, logits * repetition)
    penalized: Vector = np.where(seen, repeated, logits)
    penalized -= params.frequency_penalty * counts + params.presence_penalty * (counts > 0)
    return penalized


def keep_min_p(logits: Vector, min_p: float) -> Vector:
    """Those at least `min_p` times as probable as the likeliest (Nguyen et al., "Turning Up the Heat", 2024)."""
    probabilities = softmax(logits)
    return np.where(probabilities < min_p * probabilities.max(), -np.inf, logits)


def keep_top_k(logits: Vector, k: int) -> Vector:
    """The `k` likeliest, with all that equal the last of them; all where `k` is not in 1..vocabulary.

    Fan, Lewis and Dauphin, "Hierarchical Neural Story Generation", 2018.
    """
    if not 1 <= k <= len(logits):
        return logits
    return np.where(logits < np.sort(logits)[-k], -np.inf, logits)


def keep_top_p(logits: Vector, p: float) -> Vector:
    """The fewest of the likeliest that have at least `p` together, 0 < p <= 1; of equal ones the later stay.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019.
    """
    if p >= 1:
        return logits
    dropped = mass_before(logits) >= p
    return np.where(dropped, -np.inf, logits)


def mass_before(logits: Vector) -> Vector:
    """For each token the probability of all that come before it, likeliest first; [vocabulary].

    Equal ones in the order that vLLM's ascending sort puts them in where it is stable: the later ones first.
    """
    order = np.argsort(logits, kind="stable")[::-1]
    ordered = softmax(logits)[order]
    before = np.empty_like(ordered)
    before[order] = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
    return before
