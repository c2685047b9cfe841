"""What lies between uvicorn's protocol and the socket: how connections close, and how answers to HTTP/1.0 end."""

import asyncio
import socket
from collections.abc import Callable

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Wire(asyncio.Transport):
    """A transport whose `close` is the protocol's: a socket closed with unread input resets what the client reads."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self.write = transport.write  # type: ignore[method-assign]  # no call of our own on the way of each token
        self.abort = transport.abort  # type: ignore[method-assign]
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]
        self.close = close  # type: ignore[method-assign]


def bound_send_buffers(transport: asyncio.Transport, size: int) -> None:
    """At most about `size` bytes in the process and as many in the kernel; 0: as they come."""
    connection: socket.socket | None = transport.get_extra_info("socket")
    if size and connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        transport.set_write_buffer_limits(high=size)


def unchunked(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """`app` for an HTTP/1.0 client, which knows no chunks: an answer of unknown length lasts until the connection ends.

    uvicorn closes that by itself; told of each part that it is all there will be, it writes them as they are.
    """

    async def answering(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        until_close = False

        async def send_plain(message: ASGISendEvent) -> None:
            nonlocal until_close
            if message["type"] == "http.response.start":
                until_close = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
                if until_close:
                    cycle.chunked_encoding = False
            elif message["type"] == "http.response.body" and until_close:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plain)

    return answering
