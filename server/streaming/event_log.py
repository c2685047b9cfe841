"""The events of a stream that outlives its readers: a ring bounded in bytes, read at any position it still holds.

A position is an event's number; numbers begin with 0 and have no gaps. The latest bytes put are always held, so that
the event that ends a stream can be read for as long as the log exists.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from server.errors import PositionEvicted

READ_BYTES = 1 << 16  # about what one read gives: a reader that starts late holds no second copy of the ring


class EventLog:
    """`put` and `close` are a stream's, which never waits for a reader; `read` and `readers` are the readers'."""

    def __init__(self, limit_bytes: int, *, on_close: Callable[[], None] | None = None) -> None:
        self.first = 0  # the oldest event held
        self.next = 0  # the number of the event to come
        self.size = 0
        self.closed = False
        self.readers: set[asyncio.Event] = set()
        self._limit = limit_bytes
        self._chunks: deque[tuple[int, bytes]] = deque()  # the number of its first event, whole events
        self._on_close = on_close

    def put(self, data: bytes) -> None:
        """Whole events, numbered on from `next`."""
        self._chunks.append((self.next, data))
        self.next += data.count(b"\n\n")
        self.size += len(data)
        while self.size > self._limit and len(self._chunks) > 1:
            self.size -= len(self._chunks.popleft()[1])
            self.first = self._chunks[0][0]
        self._tell_readers()

    def close(self) -> None:
        """Nothing more will be put."""
        self.closed = True
        if self._on_close is not None:
            self._on_close()
        self._tell_readers()

    def read(self, position: int) -> list[bytes]:
        """Events from `position` on, some of those there are; none when it is yet to come.

        Raises PositionEvicted for one that is no longer held.
        """
        if position >= self.next:
            return []
        if position < self.first:
            raise PositionEvicted(position, self.first)
        found: deque[tuple[int, bytes]] = deque()
        for chunk in reversed(self._chunks):
            found.appendleft(chunk)
            if chunk[0] <= position:
                break
        events: list[bytes] = []
        size = 0
        for number, data in found:
            whole = [event + b"\n\n" for event in data.split(b"\n\n")[:-1]]
            events += whole[max(position - number, 0) :]
            size += len(data)
            if size >= READ_BYTES:
                break
        return events

    def _tell_readers(self) -> None:
        for reader in self.readers:
            reader.set()
