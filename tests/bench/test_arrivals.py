import math
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from statistics import fmean, pvariance

import pytest

from bench.arrivals import constant, gamma, poisson

N = 20_000


def gaps(arrivals: Iterator[float]) -> list[float]:
    return [after - before for before, after in pairwise(islice(arrivals, N))]


def squared_variation(values: list[float]) -> float:
    return pvariance(values) / fmean(values) ** 2


def test_constant_arrivals_start_at_once_and_never_drift() -> None:
    assert list(islice(constant(4.0), 4)) == [0.0, 0.25, 0.5, 0.75]
    assert next(islice(constant(3.0), 3_000_000, None)) == 1_000_000.0


@pytest.mark.parametrize("make", [lambda: poisson(50.0, seed=7), lambda: gamma(50.0, 0.3, seed=7)])
def test_equal_seeds_give_equal_arrivals(make: Callable[[], Iterator[float]]) -> None:
    assert list(islice(make(), 100)) == list(islice(make(), 100))


def test_other_seeds_give_other_arrivals() -> None:
    assert next(poisson(50.0, seed=1)) != next(poisson(50.0, seed=2))


# The seeds are fixed, so these either always pass or never: the bounds are five standard errors wide.
@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_asked_mean_and_variation(burstiness: float) -> None:
    found = gaps(gamma(50.0, burstiness, seed=11))
    assert fmean(found) == pytest.approx(1 / 50, rel=5 / math.sqrt(burstiness * N))
    assert squared_variation(found) == pytest.approx(1 / burstiness, rel=0.15)


def test_poisson_gaps_are_exponential() -> None:
    found = gaps(poisson(10.0, seed=3))
    for level in (0.01, 0.1, 0.3):
        expected = math.exp(-10.0 * level)
        error = math.sqrt(expected * (1 - expected) / len(found))
        assert sum(gap > level for gap in found) / len(found) == pytest.approx(expected, abs=5 * error)


def test_arrivals_never_go_back() -> None:
    assert min(gaps(gamma(100.0, 0.1, seed=5))) >= 0


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_a_rate_must_be_above_zero(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        constant(rate)
    with pytest.raises(ValueError, match="rate"):
        poisson(rate, seed=1)
    with pytest.raises(ValueError, match="burstiness"):
        gamma(1.0, rate, seed=1)
