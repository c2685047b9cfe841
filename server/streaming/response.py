"""The HTTP side of a stream: sse-starlette's response with our way of delivering bytes."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import anyio
from sse_starlette import EventSourceResponse
from starlette.types import Message, Receive, Scope, Send

from server.errors import SlowReader
from server.streaming.outbox import Write
from server.streaming.slow_readers import CUTS, SEND_TIMEOUT
from server.streaming.stream import Stream


class Connection(Protocol):
    """What the server's protocol offers beside ASGI; absent under other servers, then every write goes through send."""

    def try_write(self, body: bytes) -> bool: ...
    def abort(self) -> None: ...
    def when_lost(self, act: Callable[[], None] | None) -> None: ...


class PushedEventsResponse(EventSourceResponse, ABC):
    """Headers, HEAD and disconnects are the base class's business; `_carry` sends the body.

    A reader that lets one write wait for more than `send_timeout` seconds is cut off.
    Not used of it: its ping (a comment that breaks benchmark clients), its CRLF encoding, its per-event scope, and its
    exit watcher (this server drains by itself, ARCHITECTURE.md decision 10).
    """

    def __init__(self, *, send_timeout: float, keepalive: float) -> None:
        super().__init__(
            _nothing(),
            headers={"Cache-Control": "no-cache, no-transform"},
            ping=0,
            sep="\n",
            client_close_handler_callable=self._client_closed,
        )
        del self.headers["Connection"]  # the server's business: it knows whether the connection stays
        self._write_timeout = send_timeout
        self._keepalive = keepalive
        self._connection: Connection | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._connection = scope.get("extensions", {}).get("streamgauge")
        await super().__call__(scope, receive, send)

    @abstractmethod
    async def _carry(self, write: Write) -> None:
        """Write the whole body; raises what `write` raises."""

    async def _too_slow(self, error: SlowReader) -> None:
        """The connection is cut: no clean end may follow."""
        CUTS.labels(SEND_TIMEOUT).inc()
        self._cut()

    def _cut(self) -> None:
        if self._connection:
            self._connection.abort()

    async def _client_closed(self, message: Message) -> None:
        """The client went away."""

    async def _stream_response(self, send: Send) -> None:
        async def in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self._write_timeout):
                    await send(message)
            except TimeoutError:
                raise SlowReader from None

        async def write(data: bytes) -> None:
            await in_time({"type": "http.response.body", "body": data, "more_body": True})

        try:
            await in_time({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._carry(write)
            await in_time({"type": "http.response.body", "body": b"", "more_body": False})
            self.active = False  # not before: tasks of the base class would end by that, and with them this one
        except SlowReader as error:
            await self._too_slow(error)

    async def _listen_for_exit_signal_with_grace(self) -> None:
        await anyio.sleep_forever()


class EventStreamResponse(PushedEventsResponse):
    """Attaches a client to `stream`, which ends with it."""

    def __init__(self, stream: Stream, *, send_timeout: float, keepalive: float) -> None:
        super().__init__(send_timeout=send_timeout, keepalive=keepalive)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection | None = scope.get("extensions", {}).get("streamgauge")
        try:
            if connection is None:
                await super().__call__(scope, receive, send)
            else:  # it tells of a disconnect by itself: no task has to wait for that
                self._connection = connection
                connection.when_lost(self._stream.cancel)
                await self._stream_response(send)
        finally:
            self._stream.cancel()  # harmless after the end
            if connection is not None:
                connection.when_lost(None)

    async def _carry(self, write: Write) -> None:
        await self._stream.outbox.run(
            write,
            self._connection.try_write if self._connection else None,
            keepalive=self._keepalive,
            keep_alive=self._stream.keep_alive,
        )

    async def _too_slow(self, error: SlowReader) -> None:
        stream = self._stream
        if isinstance(stream.error, SlowReader):  # counted as such; its last event did not arrive either
            self._cut()
            return
        stream.fail(error)
        stream.ledger.error = stream.ledger.error or error.code  # also of an answer that was complete, but not out
        await super()._too_slow(error)

    async def _client_closed(self, message: Message) -> None:
        self._stream.cancel()


async def _nothing() -> AsyncIterator[Any]:
    """The base class wants an iterator of events; ours are pushed."""
    events: tuple[Any, ...] = ()
    for event in events:
        yield event
