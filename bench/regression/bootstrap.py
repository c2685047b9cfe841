"""How sure a figure is: a bootstrap over visits and the requests within each.

The two-stage bootstrap of grouped data (Davison and Hinkley, Bootstrap Methods and their Application, 3.8): visits of
an arm are drawn with replacement, then as many requests as it had within each drawn visit. A resample is kept as how
often each request was drawn, so that all figures of one resample are of the same requests.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]  # (resamples, requests): how often each request was drawn
Values = NDArray[np.float64]
Places = NDArray[np.int64]  # of requests, in the order of an arm's visits

RESAMPLES = 2000
CONFIDENCE = 0.95
BLOCK = 1 << 20  # values looked at together, which bounds the memory a percentile takes


def resample(sizes: Sequence[int], resamples: int, rng: np.random.Generator) -> Counts:
    """Draws for an arm whose visits had `sizes` requests each, none of them empty: (resamples, sum of sizes)."""
    visits = len(sizes)
    drawn = rng.multinomial(visits, _evenly(visits), size=resamples)
    # Several draws from one visit are one draw of as many times its size.
    within = [rng.multinomial(drawn[:, at] * size, _evenly(size)) for at, size in enumerate(sizes)]
    return np.concatenate(within, axis=1)


def as_it_was(requests: int) -> Counts:
    """The one resample in which each request stands once: (1, requests)."""
    return np.ones((1, requests), np.int64)


def _evenly(count: int) -> Values:
    return np.full(count, 1 / count)


def percentile(values: Values, places: Places, counts: Counts, q: float) -> Values:
    """The q-th percentile in each resample, interpolated as in `bench.metrics`; NaN where nothing was drawn.

    `values` (n) are ascending, `places` (n) are of the requests that they belong to; one may have many or none.
    """
    if not len(values):
        return np.full(len(counts), np.nan)
    rows = max(1, BLOCK // len(values))
    blocks = [counts[start : start + rows] for start in range(0, len(counts), rows)]
    return np.concatenate([_percentile(values, block[:, places].cumsum(axis=1), q) for block in blocks])


def _percentile(values: Values, reached: Counts, q: float) -> Values:
    """`reached` (resamples, n): how many draws are at or below each value's place."""
    total = reached[:, -1]
    position = np.maximum(total - 1, 0) * q / 100
    below = np.floor(position).astype(np.int64)
    low = values[_index(reached, below)]
    high = values[_index(reached, np.minimum(below + 1, total - 1))]
    return np.where(total > 0, low + (high - low) * (position - below), np.nan)


def _index(reached: Counts, nth: Counts) -> Counts:
    """Of the value that is the nth drawn, counted from 0."""
    found: Counts = np.minimum((reached <= nth[:, None]).sum(axis=1), reached.shape[1] - 1)
    return found


def interval(figures: Values, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The percentile interval of what the resamples came to; None where no resample has the figure."""
    known = figures[np.isfinite(figures)]
    if not len(known):
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)
