"""Slots of the engine: one per sequence, taken before it is submitted, given back when the engine has let go of it."""

import asyncio
from collections.abc import Callable


class Slots:
    """How many sequences may be in the engine (`limit`) and are (`in_use`)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0

    @property
    def free(self) -> int:
        """Negative after the limit has been lowered below what is in use."""
        return self.limit - self.in_use


class Permit:
    """One request's slots, fewer than it has sequences where those are more than there are slots.

    Told of each sequence when it is `submitted` and when the engine holds it no more (`released`); what is never
    submitted goes back with `close`. The last slot back sets `returned`.
    """

    def __init__(
        self, slots: int, sequences: int, prompt_tokens: int, now: float, on_freed: Callable[["Permit", int], None]
    ) -> None:
        self.held = slots
        self.prompt_tokens = prompt_tokens
        self.granted_at = now
        self.returned = asyncio.Event()
        self._not_submitted = self._not_released = sequences
        self._on_freed = on_freed

    def submitted(self) -> None:
        self._not_submitted -= 1

    def released(self) -> None:
        self._not_released -= 1
        self._shrink_to(min(self.held, self._not_released))

    def close(self) -> None:
        """Nothing more will be submitted."""
        self._not_released -= self._not_submitted
        self._not_submitted = 0
        self._shrink_to(min(self.held, self._not_released))

    def release_all(self) -> None:
        """Whatever is still held goes back; harmless when nothing is."""
        self._shrink_to(0)

    def _shrink_to(self, slots: int) -> None:
        slots = max(slots, 0)  # an engine that lets go of a sequence twice frees nobody else's slot
        freed = self.held - slots
        if freed <= 0:
            return
        self.held = slots
        if not slots:
            self.returned.set()
        self._on_freed(self, freed)
