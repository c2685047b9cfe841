"""A reader of an event log: what is left from a position on, then what comes, until the log's end."""

import asyncio
from collections.abc import Callable

from server.errors import PositionEvicted
from server.streaming.event_log import EventLog
from server.streaming.outbox import KEEP_ALIVE, Write
from server.streaming.response import PushedEventsResponse

NUMBERED_KEEP_ALIVE = b": k\n"  # no empty line: after an `id:` some clients would take that for an event


class EventLogResponse(PushedEventsResponse):
    """Sends a log's events from `position` on; the log's stream takes no notice of its readers.

    `numbered`: each event has its number as `id:`, which a browser's EventSource comes back with. `evicted` makes the
    last event of a reader that the ring has overtaken.
    """

    def __init__(
        self,
        log: EventLog,
        position: int,
        *,
        numbered: bool,
        evicted: Callable[[PositionEvicted], bytes],
        send_timeout: float,
        keepalive: float,
    ) -> None:
        super().__init__(send_timeout=send_timeout, keepalive=keepalive)
        self._log = log
        self._position = position
        self._numbered = numbered
        self._evicted = evicted
        self._keep_alive_bytes = NUMBERED_KEEP_ALIVE if numbered else KEEP_ALIVE

    async def _carry(self, write: Write) -> None:
        news = asyncio.Event()
        self._log.readers.add(news)
        try:
            await self._follow(write, news)
        finally:
            self._log.readers.discard(news)

    async def _follow(self, write: Write, news: asyncio.Event) -> None:
        log = self._log
        while True:
            news.clear()
            try:
                events = log.read(self._position)
            except PositionEvicted as error:
                await write(self._evicted(error))
                return
            if events:
                await write(self._joined(events))
                self._position += len(events)
            elif log.closed:
                return
            elif not await self._news(news):
                await write(self._keep_alive_bytes)

    def _joined(self, events: list[bytes]) -> bytes:
        if self._numbered:
            return b"".join(b"id: %d\n%b" % (number, event) for number, event in enumerate(events, self._position))
        return b"".join(events)

    async def _news(self, news: asyncio.Event) -> bool:
        """Wait for something to read; False when the silence has lasted."""
        try:
            async with asyncio.timeout(self._keepalive or None):
                await news.wait()
        except TimeoutError:
            return False
        return True
