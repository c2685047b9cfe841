"""Finished bytes on their way to one reader, and what happens when the reader is slow.

While the reader keeps up, `put` hands bytes to the transport at once. When the transport refuses, the outbox parks:
bytes collect, the task in `run` awaits the transport, and it unparks only when everything is out. At its bound the
outbox is `full` until half of that is free again: whoever puts then keeps to itself what can wait.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic_ns

from server.ledger import StepMeter
from server.streaming.slow_readers import PARKED

TryWrite = Callable[[bytes], bool]
"""Hands bytes to the transport without waiting; False, taking none of them, when it is paused or closed."""

Write = Callable[[bytes], Awaitable[None]]
"""Hands bytes to the transport, waiting while it is paused; raises SlowReader when that takes too long."""

KEEP_ALIVE = b"\n"  # the one form every SSE client survives: an empty line between events
WRITE_BYTES = 1 << 16  # about what one write takes: more would lie in the transport, where no bound counts it


class Outbox:
    """One stream's outgoing bytes. `put` and `close` are synchronous; `run` is the one task that may wait.

    `on_room` is called when a full outbox has room again, and may put.
    """

    def __init__(self, meter: StepMeter, *, limit_bytes: int, on_room: Callable[[], None] | None = None) -> None:
        self.full = False
        self._meter = meter
        self._limit = limit_bytes
        self._on_room = on_room
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0  # what is being written among them
        self._try_write: TryWrite | None = None
        self._wake = asyncio.Event()
        self._closed = False
        self._last_write = monotonic_ns()

    def put(self, data: bytes) -> None:
        """Deliver `data` in order. What cannot wait is taken when full, too: an end, an error."""
        if self._try_write is not None and not self._meter.parked and self._try_write(data):
            self._last_write = monotonic_ns()
            return
        self._meter.parked = True
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= self._limit:
            self.full = True
        self._wake.set()

    def close(self) -> None:
        """Nothing more will be put; `run` returns when all is out."""
        self._closed = True
        self._wake.set()

    async def run(
        self, write: Write, try_write: TryWrite | None, *, keepalive: float, keep_alive: bytes = KEEP_ALIVE
    ) -> None:
        """Attach the reader and carry what `put` could not, until closed and empty. Raises what `write` raises.

        After `keepalive` seconds (0: never) without a byte `keep_alive` is sent.
        """
        self._try_write = try_write
        while True:
            if self._pending:
                with PARKED.track_inprogress():
                    await self._flush(write)
            self._wake.clear()
            if self._meter.parked:
                self._meter.unpark()
            if self._closed:
                return
            await self._wait(keepalive, keep_alive)

    async def _flush(self, write: Write) -> None:
        while self._pending:
            data = self._next()
            await write(data)
            self._pending_bytes -= len(data)
            self._last_write = monotonic_ns()
            if self.full and 2 * self._pending_bytes < self._limit:
                self.full = False
                if self._on_room is not None:
                    self._on_room()

    def _next(self) -> bytes:
        """Of what was put, whole, as much as one write takes."""
        pieces = [self._pending.popleft()]
        size = len(pieces[0])
        while self._pending and size < WRITE_BYTES:
            pieces.append(self._pending.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)

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
