"""Finished bytes on their way to one reader, and what happens when the reader is slow.

While the reader keeps up, `put` hands bytes to the transport at once. When the transport refuses, the outbox parks:
bytes collect up to a bound, the task in `run` awaits the transport, and it unparks only when everything is out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic_ns

from server.errors import SlowReader
from server.ledger import StepMeter

TryWrite = Callable[[bytes], bool]
"""Hands bytes to the transport without waiting; False, taking none of them, when it is paused or closed."""

Write = Callable[[bytes], Awaitable[None]]
"""Hands bytes to the transport, waiting while it is paused."""
KEEP_ALIVE = b"\n"  # the one form every SSE client survives: an empty line between events


class Outbox:
    """One stream's outgoing bytes. `put` and `close` are synchronous; `run` is the one task that may wait."""

    def __init__(self, meter: StepMeter, *, limit_bytes: int) -> None:
        self._meter = meter
        self._limit = limit_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._try_write: TryWrite | None = None
        self._wake = asyncio.Event()
        self._closed = False
        self._last_write = monotonic_ns()

    def put(self, data: bytes) -> None:
        """Deliver `data` in order; raises SlowReader when the reader is further behind than the bound."""
        if self._try_write is not None and not self._meter.parked and self._try_write(data):
            self._last_write = monotonic_ns()
            return
        self._meter.parked = True
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > self._limit:
            raise SlowReader
        self._wake.set()

    def close(self) -> None:
        """Nothing more will be put; `run` returns when all is out."""
        self._closed = True
        self._wake.set()

    async def run(
        self,
        write: Write,
        try_write: TryWrite | None,
        *,
        send_timeout: float,
        keepalive: float,
        keep_alive: bytes = KEEP_ALIVE,
    ) -> None:
        """Attach the reader and carry what `put` could not, until closed and empty.

        Raises SlowReader when a write waits longer than `send_timeout` seconds. After `keepalive` seconds (0: never)
        without a byte `keep_alive` is sent.
        """
        self._try_write = try_write
        while True:
            await self._flush(write, send_timeout)
            if self._closed:
                return
            await self._wait(keepalive, keep_alive)

    async def _flush(self, write: Write, send_timeout: float) -> None:
        while self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            try:
                async with asyncio.timeout(send_timeout):
                    await write(data)
            except TimeoutError:
                raise SlowReader from None
            self._pending_bytes -= len(data)
            self._last_write = monotonic_ns()
        self._wake.clear()
        if self._meter.parked:
            self._meter.unpark()

    async def _wait(self, keepalive: float, keep_alive: bytes) -> None:
        """Until there is something to carry, or the silence has lasted."""
        if not keepalive:
            await self._wake.wait()
            return
        silent = (monotonic_ns() - self._last_write) / 1e9
        try:
            async with asyncio.timeout(max(keepalive - silent, 0.001)):
                await self._wake.wait()
        except TimeoutError:
            if monotonic_ns() - self._last_write >= keepalive * 1e9:
                self.put(keep_alive)
