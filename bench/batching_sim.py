"""A batcher in front of devices, in virtual time: requests of one step each, first come, first served.

The three knobs have the meaning Triton's dynamic batcher gives them (`max_batch_size`, `max_queue_delay`,
`preferred_batch_size`). What that leaves open, and what decides over the queue, is when a batch is closed:

* `seal-early`: by the arrivals alone, whether or not a device is free. Sealed batches wait in line, and nothing joins
  one while it waits.
* `join-late`: when a device takes it. Until then everything that arrives may join. With a delay of zero and no
  preferred sizes this is greedy: a free device takes whatever waits, as continuous batching does.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from heapq import heapreplace
from typing import NamedTuple

MS = 1_000_000


class Policy(StrEnum):
    SEAL_EARLY = "seal-early"
    JOIN_LATE = "join-late"


@dataclass(frozen=True, slots=True)
class Device:
    """A step over a batch takes `step_ms + item_ms * batch`: the scripted engine's cost model."""

    step_ms: float
    item_ms: float

    def step_ns(self, batch: int) -> int:
        return round((self.step_ms + self.item_ms * batch) * MS)

    def capacity(self, batch: int) -> float:
        """Requests per second in back-to-back steps of that size."""
        return batch * 1e9 / self.step_ns(batch)


@dataclass(frozen=True)
class Batching:
    """A policy and its knobs. Raises ValueError for a preferred size outside 1..max_batch_size."""

    policy: Policy
    max_batch_size: int = 32
    max_queue_delay_ms: float = 0.0
    preferred_batch_size: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(not 1 <= size <= self.max_batch_size for size in self.preferred_batch_size):
            raise ValueError(f"preferred sizes lie within 1..{self.max_batch_size}, not {self.preferred_batch_size}")

    @property
    def name(self) -> str:
        if self.policy is Policy.JOIN_LATE and not self.max_queue_delay_ms and not self.preferred_batch_size:
            return "greedy"
        sizes = f" {list(self.preferred_batch_size)}" if self.preferred_batch_size else ""
        return f"{self.policy} {self.max_queue_delay_ms:g} ms{sizes}"

    @cached_property
    def delay_ns(self) -> int:
        return round(self.max_queue_delay_ms * MS)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """At these a batch waits for nothing more; ascending."""
        return (*sorted(self.preferred_batch_size), self.max_batch_size)


class Batch(NamedTuple):
    """Requests `first` to `first + size - 1` of the trace. Nanoseconds."""

    first: int
    size: int
    sealed_ns: int
    start_ns: int
    end_ns: int


def simulate(arrivals: Sequence[int], batching: Batching, device: Device, devices: int = 1) -> list[Batch]:
    """Every request of the trace in the batch that executed it, in the order of their starts."""
    seal = _seal_early if batching.policy is Policy.SEAL_EARLY else _join_late
    steps_ns = [device.step_ns(size) for size in range(batching.max_batch_size + 1)]
    free = [0] * devices
    batches: list[Batch] = []
    first, start = 0, 0
    while first < len(arrivals):
        # Batches start in order, so none is decided on before the one ahead of it has started.
        sealed, size = seal(arrivals, first, max(start, free[0]), batching)
        start = max(sealed, free[0])
        end = start + steps_ns[size]
        heapreplace(free, end)
        batches.append(Batch(first, size, sealed, start, end))
        first += size
    return batches


def _seal_early(arrivals: Sequence[int], first: int, _: int, batching: Batching) -> tuple[int, int]:
    return _hold(arrivals, first, batching)


def _join_late(arrivals: Sequence[int], first: int, free_ns: int, batching: Batching) -> tuple[int, int]:
    """Triton's order: the largest preferred size, unless the oldest's delay is over; then all that waits; else hold."""
    now = max(free_ns, arrivals[first])
    late = now >= arrivals[first] + batching.delay_ns
    waiting = bisect_right(arrivals, now, first, min(len(arrivals), first + batching.max_batch_size)) - first
    reached = max((size for size in batching.sizes if size <= waiting), default=0)
    if reached and not (late and batching.delay_ns):
        return now, reached
    return (now, waiting) if late else _hold(arrivals, first, batching)


def _hold(arrivals: Sequence[int], first: int, batching: Batching) -> tuple[int, int]:
    """Until the smallest size at which a batch goes is there, or the oldest has waited for `max_queue_delay`."""
    deadline = arrivals[first] + batching.delay_ns
    full = first + batching.sizes[0]
    if full <= len(arrivals) and arrivals[full - 1] <= deadline:
        return arrivals[full - 1], full - first
    return deadline, bisect_right(arrivals, deadline, first, min(len(arrivals), full)) - first
