"""Where a latency-throughput curve bends."""

from collections.abc import Sequence


def knee(rates: Sequence[float], latencies: Sequence[float]) -> float | None:
    """The rate past which latency rises faster than it did on average; None for a curve that doesn't bend upwards.

    Kneedle for a convex, rising curve (Satopaa et al. 2011, "Finding a 'kneedle' in a haystack"), without its
    smoothing and its sensitivity, which are for streams of many points: both axes are scaled to one, and the knee is
    where the curve lies lowest below the diagonal. `rates` ascend.
    """
    if len(rates) < 3:
        return None
    x, y = _to_one(rates), _to_one(latencies)
    below = [a - b for a, b in zip(x, y, strict=True)]
    deepest = max(below)
    return rates[below.index(deepest)] if deepest > 0 and latencies[-1] > latencies[0] else None


def _to_one(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]
