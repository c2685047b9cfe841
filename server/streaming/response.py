"""The HTTP side of a stream: sse-starlette's response with our way of delivering bytes."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

import anyio
from sse_starlette import EventSourceResponse
from starlette.types import Message, Receive, Scope, Send

from server.errors import SlowReader
from server.streaming.stream import Stream


class Connection(Protocol):
    """What the server's protocol offers beside ASGI; absent under other servers, then every write goes through send."""

    def try_write(self, body: bytes) -> bool: ...
    def abort(self) -> None: ...


class EventStreamResponse(EventSourceResponse):
    """Attaches a client to `stream`. Headers, HEAD and disconnects are the base class's business.

    Not used of it: its ping (a comment that breaks benchmark clients), its CRLF encoding, its per-event scope, and its
    exit watcher (this server drains by itself, ARCHITECTURE.md decision 10).
    """

    def __init__(self, stream: Stream, *, send_timeout: float, keepalive: float) -> None:
        super().__init__(
            _nothing(),
            headers={"Cache-Control": "no-cache, no-transform"},
            ping=0,
            sep="\n",
            client_close_handler_callable=self._client_closed,
        )
        self._stream = stream
        self._write_timeout = send_timeout
        self._keepalive = keepalive
        self._connection: Connection | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._connection = scope.get("extensions", {}).get("streamgauge")
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.cancel()  # harmless after the end

    async def _stream_response(self, send: Send) -> None:
        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        connection = self._connection
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await self._stream.outbox.run(
                write,
                connection.try_write if connection else None,
                send_timeout=self._write_timeout,
                keepalive=self._keepalive,
            )
        except SlowReader as error:
            self._stream.fail(error)
            if connection:
                connection.abort()
            return
        self.active = False
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _client_closed(self, message: Message) -> None:
        self._stream.cancel()

    async def _listen_for_exit_signal_with_grace(self) -> None:
        await anyio.sleep_forever()


async def _nothing() -> AsyncIterator[Any]:
    """The base class wants an iterator of events; ours are pushed."""
    nothing: tuple[Any, ...] = ()
    for event in nothing:
        yield event
