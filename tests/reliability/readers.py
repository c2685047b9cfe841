"""Clients in numbers: each reads its answer to the end, or leaves at any byte of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.live import Client
from tests.support.waiting import DEADLINE_S


class Reader(Client):
    """A connection whose answer can be read byte by byte."""

    async def take(self, count: int) -> bytes:
        """The next `count` bytes, framing included."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._reader.readexactly(count)

    async def close(self) -> None:
        """Leave, but not before all that was sent is on its way."""
        self._writer.close()
        async with asyncio.timeout(DEADLINE_S):
            await self._writer.wait_closed()


@asynccontextmanager
async def readers(port: int, count: int) -> AsyncIterator[list[Reader]]:
    """So many connections; those that are left at the end are reset."""
    found: list[Reader] = []
    try:
        while len(found) < count:
            few = range(min(50, count - len(found)))  # no more than the server's backlog
            found += await asyncio.gather(*(Reader.connect(port) for _ in few))
        yield found
    finally:
        for reader in found:
            reader.reset()
