import math
from itertools import islice

import pytest

from bench.arrivals import ramp
from bench.run.arrivals import offsets
from bench.run.spec import Open, Shape, SpecError
from bench.run.traces import Recorded

N = 20_000


@pytest.mark.parametrize("shape", ["constant", "poisson", "gamma", "ramp"])
def test_every_shape_has_its_rate_on_average_and_repeats_with_its_seed(shape: Shape) -> None:
    load = Open(shape, 50.0, burstiness=0.5, rate_end=150.0)
    found = offsets(load, N, seed=3)
    rate = 100.0 if shape == "ramp" else 50.0
    # Five standard errors; gaps of burstiness 1/2 have twice the variance.
    assert found[-1] == pytest.approx(N / rate, rel=5 * math.sqrt(2 / N))
    assert found == sorted(found) and len(found) == N
    assert found == offsets(load, N, seed=3)
    assert (found == offsets(load, N, seed=4)) == (shape == "constant")


@pytest.mark.parametrize(("rate", "rate_end"), [(10.0, 90.0), (90.0, 10.0)])
def test_a_ramp_goes_in_a_straight_line(rate: float, rate_end: float) -> None:
    seconds = 400.0
    found = list(islice(ramp(rate, rate_end, seconds, seed=5), N))
    for quarter in range(4):
        start, end = quarter * seconds / 4, (quarter + 1) * seconds / 4
        middle = rate + (rate_end - rate) * (quarter + 0.5) / 4
        expected = middle * seconds / 4
        count = sum(start <= offset < end for offset in found)
        assert count == pytest.approx(expected, abs=5 * math.sqrt(expected))


def test_after_the_ramp_the_rate_stays() -> None:
    found = [offset for offset in islice(ramp(10.0, 50.0, 100.0, seed=1), 30_000) if offset >= 100.0]
    assert (len(found) - 1) / (found[-1] - found[0]) == pytest.approx(50.0, rel=5 / math.sqrt(len(found)))


def test_a_ramp_between_equal_rates_is_poisson() -> None:
    found = list(islice(ramp(10.0, 10.0, 100.0, seed=1), N))
    assert found[-1] == pytest.approx(N / 10, rel=5 / math.sqrt(N))


def test_a_trace_has_its_own_times_as_many_times_faster_as_asked() -> None:
    trace = [Recorded(offset, 1, 1) for offset in (0.0, 1.0, 5.0)]
    assert offsets(Open("trace", speed=2.0), 3, seed=0, trace=trace) == [0.0, 0.5, 2.5]


@pytest.mark.parametrize(
    "load",
    [
        Open("poisson", 0.0),
        Open("constant", -1.0),
        Open("gamma", 1.0, burstiness=0.0),
        Open("ramp", 1.0, rate_end=0.0),
        Open("ramp", 0.0, rate_end=0.0),
        Open("ramp", math.nan, rate_end=1.0),
        Open("trace", speed=0.0),
    ],
)
def test_rates_that_are_none_are_errors(load: Open) -> None:
    with pytest.raises(SpecError, match="above zero"):
        offsets(load, 5, seed=0)
