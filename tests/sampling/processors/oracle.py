"""The samplers once more, in float64 and one row at a time, each from the formula that its docstring cites."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.floating]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Choice:
    """The tokens to keep; `sure` are those so far from the border that float32 must come to the same."""

    kept: Bools
    sure: Bools

    def check(self, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
        """That a sampler kept these and changed none of them; were many unsure, little would have been checked."""
        decided = self.sure | np.isneginf(before)
        assert (~decided).sum() <= max(1, len(before) // 50)
        expected = np.where(self.kept, before, -np.inf)
        np.testing.assert_array_equal(after[decided], expected[decided])
        assert np.isfinite(after).any()
        assert not np.isnan(after).any()


def softmax(logits: Logits) -> Floats:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def surprise(logits: Logits) -> Floats:
    """-ln p, in nats; infinite for what is out."""
    shifted = logits.astype(np.float64) - logits.max()
    return np.log(np.exp(shifted).sum()) - shifted


def entropy(logits: Logits) -> float:
    p = softmax(logits)
    present = p > 0
    return float(p[present] @ surprise(logits)[present])


def top_n_sigma(logits: Logits, n: float) -> Choice:
    present = logits[np.isfinite(logits)].astype(np.float64)
    lowest = present.max() - n * present.std()
    return Choice(logits >= lowest, np.abs(logits - lowest) > 1e-5 * (1 + np.abs(present).max()))


def typical_p(logits: Logits, p: float) -> Choice:
    mass, distance = softmax(logits), np.abs(surprise(logits) - entropy(logits))
    order = np.argsort(distance, kind="stable")
    before = np.empty_like(mass)
    before[order] = np.concatenate(([0.0], np.cumsum(mass[order])[:-1]))
    kept = before < p
    kept[order[0]] = True
    last = np.abs(distance - distance[kept & np.isfinite(logits)].max()) < 1e-5
    return Choice(kept, (np.abs(before - p) > 2e-6) & ~(last & (last.sum() > 1)))


def xtc(logits: Logits, threshold: float) -> Choice:
    """For a draw that lets it happen."""
    mass = softmax(logits)
    top = np.flatnonzero((mass >= threshold) & np.isfinite(logits))
    kept = np.ones(len(logits), dtype=bool)
    kept[top] = False
    if len(top):
        kept[top[np.argmin(mass[top])]] = True
    return Choice(kept, np.abs(mass - threshold) > 1e-6)


def dynamic_temperature(logits: Logits, temperature: float, spread: float, exponent: float) -> float:
    greatest = np.log(np.isfinite(logits).sum())
    low, high = max(0.0, temperature - spread), temperature + spread
    return float(low + (high - low) * (entropy(logits) / greatest) ** exponent)


def mirostat(logits: Logits, temperature: float, mu: float) -> Choice:
    bits = surprise(logits.astype(np.float64) / temperature) / np.log(2)
    kept = bits <= mu
    kept[np.argmax(logits)] = True
    return Choice(kept, np.abs(bits - mu) > 1e-4)


def mirostat_observed(logits: Logits, temperature: float, mu: float, token: int) -> float:
    """The surprise, in bits, of a token that was sampled from what Mirostat left."""
    left = np.where(mirostat(logits, temperature, mu).kept, logits.astype(np.float64), -np.inf)
    return float(surprise(left / temperature)[token] / np.log(2))
