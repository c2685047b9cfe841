"""What a process keeps of requests that have ended: a straight line through what it holds after each round of them."""

import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import median

_C = ctypes.CDLL(None)  # glibc
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Growth:
    """By request: `blocks` of Python's own memory, an exact count, and `resident` bytes of all there is."""

    requests: list[int] = field(default_factory=list)
    blocks_held: list[int] = field(default_factory=list)
    resident_held: list[int] = field(default_factory=list)

    @property
    def blocks(self) -> float:
        return self._slope(self.blocks_held)

    @property
    def resident(self) -> float:
        return self._slope(self.resident_held)

    def sample(self, requests: int) -> None:
        gc.collect()
        _C.malloc_trim(0)  # pages that are free but not given back would hide what is kept
        self.requests.append(requests)
        self.blocks_held.append(sys.getallocatedblocks())
        self.resident_held.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)

    def _slope(self, held: Sequence[int]) -> float:
        """Theil and Sen's: an allocator that once takes half a megabyte ahead does not tilt it."""
        points = combinations(zip(self.requests, held, strict=True), 2)
        return median((later - earlier) / (upto - since) for (since, earlier), (upto, later) in points)


async def growth_of(load: Callable[[int], Awaitable[None]], *, warm_up: int, rounds: int, requests: int) -> Growth:
    """Of so many `rounds` of so many `requests` each; `load` makes as many as it is told, and leaves nothing open."""
    await load(warm_up)
    growth = Growth()
    growth.sample(0)
    for number in range(1, rounds + 1):
        await load(requests)
        growth.sample(number * requests)
    return growth


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def tasks() -> set[str]:
    """The names of all that runs but its asker's."""
    return {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
