"""What a simulated run came to: latencies, and beside them utilization, occupancy and queue depth."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter

from bench.batching_sim import MS, Batch, Batching, Device, simulate
from bench.metrics import Distribution


@dataclass(frozen=True, slots=True)
class Arm:
    """A batching and how many devices stand behind it."""

    batching: Batching
    devices: int = 1

    @property
    def name(self) -> str:
        return f"{self.batching.name}{f' x{self.devices}' if self.devices > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Figures:
    """Latencies in milliseconds from the arrival on, shares within 0..1.

    * `rate`: requests per second of wall time, which ends with the last answer.
    * `waiting_ms`: arrival to the start of the step; `forming_ms` is its mean part until the batch was sealed.
    * `busy`: share of wall time in which a device executes, over all devices: the effective utilization.
    * `busy_at_arrival`: share of requests that found no device free.
    * `occupancy`: mean batch / max_batch_size.
    * `of_capacity`: `rate` / the rate of full batches back to back.
    * `depth`, `depth_max`: requests that wait, as a mean over wall time and at the worst moment.
    """

    rate: float
    latency_ms: Distribution
    waiting_ms: Distribution
    forming_ms: float
    execution_ms: float
    batch: float
    occupancy: float
    busy: float
    busy_at_arrival: float
    of_capacity: float
    depth: float
    depth_max: int


def measure(arrivals: Sequence[int], arm: Arm, device: Device) -> Figures:
    """Simulates the arm. Raises ValueError when nothing arrives."""
    batches = simulate(arrivals, arm.batching, device, arm.devices)
    latency, waiting = Distribution.of_ns(latencies_ns(arrivals, batches)), Distribution.of_ns(waits(arrivals, batches))
    if latency is None or waiting is None:
        raise ValueError("no arrivals, no figures")
    wall_ns = max(batch.end_ns for batch in batches)
    area, depth_max = depth(arrivals, batches)
    rate, size, most = len(arrivals) * 1e9 / wall_ns, len(arrivals) / len(batches), arm.batching.max_batch_size
    return Figures(
        rate=rate,
        latency_ms=latency,
        waiting_ms=waiting,
        forming_ms=sum(_per_request(arrivals, batches, sealed=True)) / len(arrivals) / MS,
        execution_ms=_executed_ns(batches) / len(batches) / MS,
        batch=size,
        occupancy=size / most,
        busy=busy_share(batches, arm.devices),
        busy_at_arrival=_busy_at_arrival(arrivals, batches, arm.devices),
        of_capacity=rate / (device.capacity(most) * arm.devices),
        depth=area / wall_ns,
        depth_max=depth_max,
    )


def busy_share(batches: Sequence[Batch], devices: int = 1) -> float:
    """Of the time until the last answer, over all devices."""
    return _executed_ns(batches) / max(batch.end_ns for batch in batches) / devices


def _executed_ns(batches: Sequence[Batch]) -> int:
    return sum(batch.end_ns - batch.start_ns for batch in batches)


def latencies_ns(arrivals: Sequence[int], batches: Sequence[Batch]) -> list[int]:
    """By arrival."""
    return [batch.end_ns - stamp for batch in batches for stamp in arrivals[batch.first : batch.first + batch.size]]


def waits(arrivals: Sequence[int], batches: Sequence[Batch]) -> Iterator[int]:
    """Nanoseconds from each arrival to the start of its step."""
    return _per_request(arrivals, batches, sealed=False)


def _per_request(arrivals: Sequence[int], batches: Sequence[Batch], *, sealed: bool) -> Iterator[int]:
    for batch in batches:
        until = batch.sealed_ns if sealed else batch.start_ns
        for stamp in arrivals[batch.first : batch.first + batch.size]:
            yield until - stamp


def depth(arrivals: Sequence[int], batches: Sequence[Batch]) -> tuple[int, int]:
    """Requests that wait, swept over time: the integral in request-nanoseconds, and the most at once."""
    comes = ((stamp, 1) for stamp in arrivals)
    goes = ((batch.start_ns, -batch.size) for batch in batches)
    area = waiting = most = last = 0
    for now, change in merge(comes, goes, key=itemgetter(0)):
        area += waiting * (now - last)
        waiting += change
        most, last = max(most, waiting), now
    return area, most


def _busy_at_arrival(arrivals: Sequence[int], batches: Sequence[Batch], devices: int) -> float:
    starts, ends = [batch.start_ns for batch in batches], sorted(batch.end_ns for batch in batches)
    # Strictly before: the step that an arrival sets off itself doesn't count.
    found = sum(bisect_left(starts, stamp) - bisect_right(ends, stamp) == devices for stamp in arrivals)
    return found / len(arrivals)
