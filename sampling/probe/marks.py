"""Moments of a step in the model runner: by the host's clock where the host computes, by events where a device does."""

from enum import IntEnum
from time import monotonic_ns
from typing import Any, Protocol


class Place(IntEnum):
    """In a step's order."""

    FORWARD = 0
    FORWARD_END = 1
    LOGITS = 2  # V2 alone: its logits are computed with the sampling, V1's with the forward
    SAMPLE = 3
    SAMPLE_END = 4


class Marks(Protocol):
    """Of one step."""

    def mark(self, place: Place) -> None:
        """Now, or when the device gets there."""
        ...

    def between(self, start: Place, end: Place) -> int:
        """ns; 0 if one of them was not passed. Where a device computes, only once it has passed both."""
        ...

    def since(self, earlier: "Marks | None") -> int:
        """ns from the end of an earlier step's sampling to this step's forward, both passed; 0 on a host."""
        ...


class Timer(Protocol):
    """Makes the marks of each step, and takes them back."""

    def marks(self) -> Marks: ...

    def release(self, marks: Any) -> None: ...


class HostTimer:
    """For a CPU: what runs between two moments has run when the second one comes."""

    def marks(self) -> "HostMarks":
        return HostMarks()

    def release(self, marks: Any) -> None:
        pass


class HostMarks:
    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at = [0] * len(Place)

    def mark(self, place: Place) -> None:
        self._at[place] = monotonic_ns()

    def between(self, start: Place, end: Place) -> int:
        return self._at[end] - self._at[start] if self._at[start] and self._at[end] else 0

    def since(self, earlier: Marks | None) -> int:
        return 0


class DeviceTimer:
    """For a GPU: events recorded on the current stream, never waited for. Made once and used again.

    `make_event` gives a `torch.cuda.Event(enable_timing=True)`.
    """

    def __init__(self, make_event: Any) -> None:
        self._make_event = make_event
        self._free: list[DeviceMarks] = []

    def marks(self) -> "DeviceMarks":
        marks = self._free.pop() if self._free else DeviceMarks([self._make_event() for _ in Place])
        marks.passed = [False] * len(Place)
        return marks

    def release(self, marks: "DeviceMarks") -> None:
        self._free.append(marks)


class DeviceMarks:
    __slots__ = ("_events", "passed")

    def __init__(self, events: list[Any]) -> None:
        self._events = events
        self.passed = [False] * len(Place)

    def mark(self, place: Place) -> None:
        self._events[place].record()
        self.passed[place] = True

    def between(self, start: Place, end: Place) -> int:
        if not (self.passed[start] and self.passed[end]):
            return 0
        return _ns(self._events[start], self._events[end])

    def since(self, earlier: Marks | None) -> int:
        if not (isinstance(earlier, DeviceMarks) and earlier.passed[Place.SAMPLE_END] and self.passed[Place.FORWARD]):
            return 0
        return max(_ns(earlier._events[Place.SAMPLE_END], self._events[Place.FORWARD]), 0)


def _ns(start: Any, end: Any) -> int:
    return int(start.elapsed_time(end) * 1e6)  # it counts in ms
