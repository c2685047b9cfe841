"""Rows and steps for the samplers' tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sampling.processors.base import Group, Row, Sampler
from sampling.shaping import Shaping

Logits = NDArray[np.float32]

OUT = -np.inf

EDGES: dict[str, list[float]] = {
    "one token in": [OUT, 3.0, OUT, OUT],
    "all alike": [2.0, 2.0, 2.0, 2.0],
    "huge, and far apart": [1e4, -1e4, 0.0, OUT],
    "huge, and near": [-1e4, -1e4 + 0.01, -1e4 - 0.01, -1e4],
    "two alike at the top": [1e4, 1e4, -1e4, OUT],
}
"""Rows that tempt a formula into 0 * inf, 0 / 0 or taking out all."""


def row(
    temperature: float = 1.0, seed: int = 0, prompt: Sequence[int] = (), output: Sequence[int] = (), **shaping: Any
) -> Row:
    return Row(Shaping(**shaping), temperature, seed, list(prompt), list(output))


def shape(sampler: Sampler, logits: Sequence[Sequence[float]] | Logits, rows: Sequence[Row]) -> Logits:
    """One step; the logits [rows, vocabulary] given stay as they are."""
    step = torch.tensor(np.asarray(logits, dtype=np.float32))
    shaped: Logits = sampler.apply(step, Group(rows, step.device)).numpy()
    return shaped


def random_logits(seed: int, vocabulary: int, rows: int = 1) -> Logits:
    """Of a spread that differs from row to row; a fifth of the tokens is out already, the first never."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(rows, vocabulary)) * random.uniform(0.3, 6, size=(rows, 1))
    out = random.random(logits.shape) < 0.2
    out[:, 0] = False
    return np.where(out, OUT, logits).astype(np.float32)


def probabilities(*values: float) -> list[float]:
    """Logits of a distribution."""
    with np.errstate(divide="ignore"):
        return list(np.log(np.array(values)))


def kept(logits: Logits) -> list[int]:
    return [int(token) for token in np.flatnonzero(logits > OUT)]
