"""When requests arrive in an open loop: endless offsets in seconds from the start; equal seeds give equal ones."""

import random
from collections.abc import Iterator
from itertools import count
from math import sqrt


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


def ramp(rate: float, rate_end: float, seconds: float, seed: int) -> Iterator[float]:
    """Poisson arrivals whose rate goes in a straight line from `rate` to `rate_end` and stays there.

    By inversion (Çinlar, Introduction to Stochastic Processes, 1975): arrivals of rate 1, sent through the inverse of
    the expected number of arrivals, r·t + (r_end - r)·t² / 2·seconds.
    """
    for name, value in {"rate": rate, "rate_end": rate_end, "seconds": seconds}.items():
        _check_positive(name, value)
    return (_ramp_time(expected, rate, rate_end, seconds) for expected in poisson(1.0, seed))


def _ramp_time(expected: float, rate: float, rate_end: float, seconds: float) -> float:
    """When so many arrivals are expected to have been."""
    on_ramp = (rate + rate_end) / 2 * seconds
    if expected >= on_ramp:
        return seconds + (expected - on_ramp) / rate_end
    slope = (rate_end - rate) / seconds
    # The root that is also right for a slope of zero, and loses no digits near it.
    return 2 * expected / (rate + sqrt(rate * rate + 2 * slope * expected))


def _gamma(shape: float, scale: float, rng: random.Random) -> Iterator[float]:
    offset = 0.0
    while True:
        offset += rng.gammavariate(shape, scale)
        yield offset


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be above zero, not {value}")
