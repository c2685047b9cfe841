"""One trace of arrivals that every arm sees: bursts with silence between, thinned to the load that is asked for."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

NS = 1e9


@dataclass(frozen=True, slots=True)
class Traffic:
    """Poisson arrivals while a burst lasts and none between bursts; lengths in seconds.

    Bursts and the silence between them have exponential lengths (an interrupted Poisson process), scaled so that
    bursts take exactly `duty` of the time and traces of different seeds offer the same load. A `duty` of 1 leaves no
    silence: plain Poisson arrivals.
    """

    burst_s: float
    duty: float
    duration_s: float

    def __post_init__(self) -> None:
        if not (self.burst_s > 0 and 0 < self.duty <= 1 and self.duration_s > 0):
            raise ValueError("burst_s and duration_s must be above zero, duty within (0, 1]")

    def bursts(self, rng: random.Random) -> Iterator[tuple[float, float]]:
        """Start and end of each, in seconds from the start."""
        count = max(1, round(self.duration_s * self.duty / self.burst_s))
        lengths = _random_parts(self.duration_s * self.duty, count, rng)
        silences = _random_parts(self.duration_s * (1 - self.duty), count + 1, rng)
        start = 0.0
        for silence, length in zip(silences, lengths, strict=False):
            start += silence
            yield start, start + length
            start += length


class Trace:
    """Arrivals at up to `top_rate` requests/s on average. At a lower rate it is the same trace with fewer of its
    requests: each has a mark drawn once, so what arrives at some rate arrives at every higher one too, and bursts keep
    their times and lengths."""

    def __init__(self, traffic: Traffic, top_rate: float, seed: int) -> None:
        rng = random.Random(seed)
        self.top_rate = top_rate
        self._arrivals_ns = [
            int(offset * NS)
            for start, end in traffic.bursts(rng)
            for offset in _within(start, end, top_rate / traffic.duty, rng)
        ]
        self._marks = [rng.random() for _ in self._arrivals_ns]
        # A search asks for the same rates for every setting.
        self._thinned: dict[float, Sequence[int]] = {}

    def at(self, rate: float) -> Sequence[int]:
        """Arrivals in nanoseconds from the start, ascending, `rate` per second on average.

        Raises ValueError for a rate above `top_rate`, which the trace cannot give.
        """
        if not 0 < rate <= self.top_rate:
            raise ValueError(f"the trace gives rates up to {self.top_rate}/s, not {rate}")
        if rate not in self._thinned:
            share = rate / self.top_rate
            marked = zip(self._arrivals_ns, self._marks, strict=True)
            self._thinned[rate] = [stamp for stamp, mark in marked if mark < share]
        return self._thinned[rate]


def _within(start: float, end: float, rate: float, rng: random.Random) -> Iterator[float]:
    """Poisson arrivals between two offsets, in seconds."""
    offset = start + rng.expovariate(rate)
    while offset < end:
        yield offset
        offset += rng.expovariate(rate)


def _random_parts(whole: float, count: int, rng: random.Random) -> list[float]:
    parts = [rng.expovariate(1.0) for _ in range(count)]
    scale = whole / sum(parts)
    return [part * scale for part in parts]
