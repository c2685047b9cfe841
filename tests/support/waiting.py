"""Deadlines: generous, since they only tell a hang from a slow machine."""

import asyncio
from collections.abc import Callable

DEADLINE_S = 20.0


async def until(condition: Callable[[], object], seconds: float = DEADLINE_S) -> None:
    """Wait for `condition` to hold; AssertionError when it never does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"still not so after {seconds} s"
        await asyncio.sleep(0.002)


async def turns(count: int = 20) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)
