"""Top-p without sorting the vocabulary, for logits on a CPU.

What decides is one value per row: the logit of the token with which the mass of the likelier ones reaches p (Holtzman
et al., "The Curious Case of Neural Text Degeneration", 2019). A histogram of the mass over the logit, cut fine and
again within the bin where p is reached, finds it while it touches the row a few times only.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

BINS = 4096
SORTED = 2048  # so many values are sorted rather than counted once more

Row = NDArray[np.float32]


class _Cut(NamedTuple):
    """What is lower than `value` goes, and the first `surplus` of the tokens that equal it."""

    value: float = -math.inf
    surplus: int = 0


def apply_top_p(logits: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Takes out, in place and with -inf, what is not among each row's likeliest tokens of mass `top_p` together.

    `logits` is [rows, vocabulary] float32, `top_p` [rows], each over 0; a row with 1 is left alone. The likeliest token
    always stays. Of equal tokens at the threshold only as many stay as are needed, the last ones: those that vLLM
    keeps, where its ascending sort is stable. Exact but for tokens within 1e-6 of the threshold: the weights are
    float32, their sums float64.
    """
    cuts = [_cut(row, p) if p < 1 else _Cut() for row, p in zip(logits.numpy(), top_p.tolist(), strict=True)]
    lowest = torch.tensor([cut.value for cut in cuts], dtype=torch.float32).unsqueeze(1)
    logits.masked_fill_(logits < lowest, -math.inf)
    for row, cut in zip(logits, cuts, strict=True):
        if cut.surplus:
            row[(row == cut.value).nonzero()[: cut.surplus]] = -math.inf
    return logits


def _cut(row: Row, p: float) -> _Cut:
    top = float(row.max())
    weights = np.exp(row - top)
    wanted = p * float(weights.sum(dtype=np.float64))
    # Tokens below this have less than 1 - p together, even if all were just below it.
    lowest = top + math.log((1 - p) / len(row))
    values = row
    while len(values) > SORTED:
        high, low = float(values.max()), max(float(values.min()), lowest)
        if low >= high:
            break
        bins = np.minimum((high - values) / (high - low) * BINS, BINS).astype(np.intp)
        mass = np.cumsum(np.bincount(bins, weights), dtype=np.float64)
        reached = _first_reaching(mass, wanted)
        wanted -= mass[reached - 1] if reached else 0.0
        inside = bins == reached
        values, weights = values[inside], weights[inside]
    return _cut_sorted(values, top, wanted)


def _cut_sorted(values: Row, top: float, wanted: float) -> _Cut:
    ascending = np.sort(values)
    mass = np.cumsum(np.exp(ascending[::-1] - top), dtype=np.float64)
    kept = _first_reaching(mass, wanted) + 1
    value = float(ascending[-kept])
    equal_or_more = len(values) - int(np.searchsorted(ascending, value))
    return _Cut(value, equal_or_more - kept)


def _first_reaching(mass: NDArray[np.float64], wanted: float) -> int:
    """Where a rising sum is `wanted` or more; the last place if rounding has left it just short."""
    return min(int(np.searchsorted(mass, wanted)), len(mass) - 1)
