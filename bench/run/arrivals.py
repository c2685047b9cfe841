"""When the conversations of an open loop begin: seconds from the start of the run, as its Spec has it."""

from collections.abc import Iterator, Sequence
from itertools import islice

from bench import arrivals
from bench.run.spec import Open, SpecError
from bench.run.traces import Recorded


def offsets(load: Open, count: int, seed: int, trace: Sequence[Recorded] = ()) -> list[float]:
    """Of `count` conversations, ascending. `trace` is the file's, for a load that has its shape.

    Raises SpecError for rates that are none.
    """
    try:
        return list(islice(_endless(load, count, seed, trace), count))
    except ValueError as error:
        raise SpecError(str(error)) from None


def _endless(load: Open, count: int, seed: int, trace: Sequence[Recorded]) -> Iterator[float]:
    match load.shape:
        case "constant":
            return arrivals.constant(load.rate)
        case "poisson":
            return arrivals.poisson(load.rate, seed)
        case "gamma":
            return arrivals.gamma(load.rate, load.burstiness, seed)
        case "ramp":
            return arrivals.ramp(load.rate, load.rate_end, _ramp_seconds(load, count), seed)
        case "trace":
            return _replayed(trace, load.speed)


def _ramp_seconds(load: Open, count: int) -> float:
    """How long `count` arrivals take at the mean of both rates; raises ValueError."""
    if not load.rate + load.rate_end > 0:
        raise ValueError(f"a ramp needs rates above zero, not {load.rate} and {load.rate_end}")
    return max(count, 1) / ((load.rate + load.rate_end) / 2)


def _replayed(trace: Sequence[Recorded], speed: float) -> Iterator[float]:
    if not speed > 0:
        raise ValueError(f"speed must be above zero, not {speed}")
    return (one.offset_s / speed for one in trace)
