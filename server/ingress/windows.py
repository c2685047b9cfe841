"""How much of a key's minute is used: a sliding window, counted by `limits` as the last minute's share plus this one's.

The last minute's count fades as this minute goes by, so that room comes back steadily and not once a minute.

What `limits` lacks is a way back: its strategies only count up. So `take` also tells *which* window it counted in, and
`settle` lowers that one, or what is left of it: whatever the request did not use must not make room in a later minute,
where it was never counted.
"""

import time
from dataclasses import dataclass
from math import floor, inf
from typing import Protocol

from limits.aio.storage import MemoryStorage

WINDOW_S = 60
_MOMENT_S = 1e-3  # past the point where a fading count falls below a whole number


@dataclass(frozen=True, slots=True)
class Level:
    """Counts of the previous and the current window, and the seconds that the current one still lasts."""

    previous: int = 0
    current: int = 0
    left_s: float = 0.0

    @property
    def used(self) -> int:
        return floor(self.previous * self.left_s / WINDOW_S) + self.current

    def after(self, seconds: float) -> "Level":
        """What this fades to when nothing more is taken."""
        if seconds < self.left_s:
            return Level(self.previous, self.current, self.left_s - seconds)
        if seconds < self.left_s + WINDOW_S:
            return Level(self.current, 0, self.left_s + WINDOW_S - seconds)
        return Level()

    def wait(self, limit: int, amount: int) -> float:
        """Seconds until `amount` fits below `limit`, when nothing more is taken; infinite if it never will."""
        if amount > limit:
            return inf
        if self.current + amount <= limit:
            return _fading(self.previous, self.left_s, limit - amount - self.current)
        return self.left_s + _fading(self.current, WINDOW_S, limit - amount)


def _fading(count: int, left_s: float, room: int) -> float:
    """Seconds until no more than `room` is left of `count`, which fades to nothing within `left_s`."""
    if floor(count * left_s / WINDOW_S) <= room:
        return 0.0
    return left_s - (room + 1) * WINDOW_S / count + _MOMENT_S


@dataclass(frozen=True, slots=True)
class Taking:
    """What became of `take`: whether there was room, how it stands now, and in which window it was counted."""

    granted: bool
    level: Level
    window: int


class Windows(Protocol):
    """Counts by key. Both calls are atomic; they raise whatever the storage raises."""

    async def take(self, key: str, limit: int, amount: int) -> Taking:
        """Count `amount` unless that would exceed `limit`; an amount of 0 only looks."""
        ...

    async def settle(self, key: str, window: int, surplus: int) -> None:
        """Give back `surplus` to the window it was taken from, if it still counts; less than 0: take more, now."""
        ...

    async def close(self) -> None: ...


class MemoryWindows(MemoryStorage):
    """In this process. Windows are minutes of the wall clock, counted from 1970.

    Atomic since none of the library's calls in here ever suspends: its locks are never held across a suspension.
    """

    async def take(self, key: str, limit: int, amount: int) -> Taking:
        # Read before the library reads its own: if the minute ends in between, the surplus goes to the minute before,
        # where it makes less room than it could, never more.
        window = _window_at(time.time())
        granted = await self.acquire_sliding_window_entry(key, limit, WINDOW_S, amount)
        previous, _, current, expires_in = await self.get_sliding_window(key, WINDOW_S)
        return Taking(granted, Level(previous, current, expires_in - WINDOW_S), window)

    async def settle(self, key: str, window: int, surplus: int) -> None:
        now = _window_at(time.time())
        if surplus < 0:
            await self.incr(f"{key}/{now}", 2 * WINDOW_S, -surplus)
        elif window >= now - 1:  # an older count is gone, and would come back as a 0 that never expires
            await self.decr(f"{key}/{window}", surplus)

    async def close(self) -> None:
        """There is nothing to close."""


def _window_at(seconds: float) -> int:
    return int(seconds / WINDOW_S)
