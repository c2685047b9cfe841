"""Counters for the hot path: a duration costs one bisection and two additions, prometheus sees them at scrape only."""

from bisect import bisect_left
from collections.abc import Sequence

SECONDS = (
    50e-6, 100e-6, 200e-6, 500e-6,
    1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3,
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
_BOUNDS_NS = [round(seconds * 1e9) for seconds in SECONDS]


class BucketCounter:
    """A histogram of durations in ns. Not thread-safe: observed on the event loop, read at scrape on it too."""

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_NS) + 1)
        self._sum = 0

    def observe(self, ns: int) -> None:
        self._counts[bisect_left(_BOUNDS_NS, ns)] += 1
        self._sum += ns

    @property
    def count(self) -> int:
        return sum(self._counts)

    @property
    def sum_seconds(self) -> float:
        return self._sum / 1e9

    def cumulative(self) -> Sequence[tuple[str, float]]:
        """Prometheus buckets: (upper bound in seconds, observations up to it), ending with +Inf."""
        total, buckets = 0, []
        for bound, count in zip([*map(str, SECONDS), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets
