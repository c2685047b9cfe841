"""When requests arrive in an open loop: endless offsets in seconds from the start; equal seeds give equal ones."""

import random
from collections.abc import Iterator
from itertools import count


def constant(rate: float) -> Iterator[float]:
    """One request every 1/rate seconds, the first at once."""
    _check_positive("rate", rate)
    # By index, not by sum: the millionth arrival is still where it belongs.
    return (index / rate for index in count())


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Independent users: exponential gaps, on average `rate` requests per second."""
    return gamma(rate, 1.0, seed)


def gamma(rate: float, burstiness: float, seed: int) -> Iterator[float]:
    """Gamma-distributed gaps of mean 1/rate; their squared variation is 1/burstiness, so below 1 is burstier."""
    _check_positive("rate", rate)
    _check_positive("burstiness", burstiness)
    return _gamma(burstiness, 1 / (rate * burstiness), random.Random(seed))


def _gamma(shape: float, scale: float, rng: random.Random) -> Iterator[float]:
    offset = 0.0
    while True:
        offset += rng.gammavariate(shape, scale)
        yield offset


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be above zero, not {value}")
