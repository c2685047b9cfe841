"""Fix the latency bound, then maximise throughput under it: the highest rate of each setting, and the best setting."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from bench.batching_figures import Arm, latencies_ns
from bench.batching_sim import MS, Batching, Device, Policy, simulate
from bench.batching_trace import Trace
from bench.metrics import percentile

RATE_STEP = 5
DELAYS_MS = (0.0, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 32.0)
PREFERRED: tuple[tuple[int, ...], ...] = ((), (8,), (16,), (8, 16))


@dataclass(frozen=True, slots=True)
class Found:
    """The highest rate in requests/s, a multiple of RATE_STEP, at which P99 is within the bound; 0: at none."""

    batching: Batching
    rate: int


def p99_ms(trace: Trace, rate: float, arm: Arm, device: Device) -> float:
    arrivals = trace.at(rate)
    ordered = sorted(latencies_ns(arrivals, simulate(arrivals, arm.batching, device, arm.devices)))
    return percentile(ordered, 99) / MS


def highest_rate(trace: Trace, arm: Arm, device: Device, bound_ms: float) -> int:
    """By bisection: latency is taken to grow with the rate, which holds for all but neighbouring rates."""
    rates = range(RATE_STEP, int(trace.top_rate) + 1, RATE_STEP)
    within = bisect_left(rates, True, key=lambda rate: p99_ms(trace, rate, arm, device) > bound_ms)
    return rates[within - 1] if within else 0


def settings() -> list[Batching]:
    """What the search tries. With a delay of zero sealing early knows no sizes: each request goes alone."""
    return [
        Batching(policy, max_queue_delay_ms=delay, preferred_batch_size=preferred)
        for policy, preferred, delay in product(Policy, PREFERRED, DELAYS_MS)
    ]


def search(trace: Trace, device: Device, bound_ms: float) -> list[Found]:
    return [Found(batching, highest_rate(trace, Arm(batching), device, bound_ms)) for batching in settings()]


def best(found: Iterable[Found]) -> Found:
    """The highest rate; what lies within a step of it is no worse, and of that the shortest delay and fewest sizes."""
    known = list(found)
    top = max(each.rate for each in known)
    return min(
        (each for each in known if each.rate >= top - RATE_STEP),
        key=lambda each: (each.batching.max_queue_delay_ms, len(each.batching.preferred_batch_size), -each.rate),
    )
