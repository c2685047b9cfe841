"""The protocol between a pretended transport and a pretended application."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from server.config import HttpSettings
from server.ingress.connection import Connection
from server.ingress.protocol import MeasuredProtocol
from tests.support.waiting import turns

GET = b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /two HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
CHUNKED = b"POST /two HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
LIMITS: dict[str, Any] = {
    "header_timeout": 10.0,
    "body_timeout": 30.0,
    "idle_timeout": 75,
    "max_header_bytes": 1024,
    "max_headers": 10,
    "max_body_bytes": 2000,
}


Handler = Callable[[Connection, Any, Any], Awaitable[None]]


class MockTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = b""
        self.closed = False
        self.aborted = False
        self.ended = False  # our side alone
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("127.0.0.1", 8000), "peername": ("127.0.0.1", 1)}.get(name)

    def write(self, data: Any) -> None:
        assert not self.closed and not self.ended
        self.buffer += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Wire:
    """One connection to an application that lets `handler` answer."""

    def __init__(self, handler: Handler, **http: Any) -> None:
        self.seen: list[tuple[str, Connection]] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            connection = scope["extensions"]["streamgauge"]
            self.seen.append((scope["path"], connection))
            await handler(connection, receive, send)

        self.transport = MockTransport()
        self.protocol = MeasuredProtocol(
            config=Config(app=app, log_config=None, access_log=False, server_header=False, date_header=False),
            server_state=ServerState(),
            app_state={},
            http=HttpSettings(**http),
        )
        self.protocol.connection_made(self.transport)

    async def feed(self, data: bytes) -> None:
        self.protocol.data_received(data)
        await turns()

    async def later(self, seconds: float) -> None:
        """What the protocol does when that time has passed since now."""
        self.protocol.expire(monotonic_ns() + int(seconds * 1e9))
        await turns()

    def close(self) -> None:
        if self.protocol.timeout_keep_alive_task is not None:
            self.protocol.timeout_keep_alive_task.cancel()

    def take(self) -> bytes:
        taken, self.transport.buffer = self.transport.buffer, b""
        return taken


async def start(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def end(send: Any) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Held:
    """An answer that starts and stays open until told to end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.sends: list[Any] = []

    async def __call__(self, connection: Connection, receive: Any, send: Any) -> None:
        self.sends.append(send)
        await start(send)
        await self.may_end.wait()
        await end(send)


class Reader:
    """Reads its request to the end, then answers."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.deserted = 0

    async def __call__(self, connection: Connection, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.deserted += 1
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        await start(send)
        await end(send)


def refusal(wire: Wire) -> tuple[int, str]:
    """Status and code of the one answer that was written; our side has ended."""
    head, _, body = wire.take().partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert "connection: close" in lines
    assert f"content-length: {len(body)}" in lines
    assert wire.transport.ended
    error = json.loads(body)["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return int(lines[0].split(" ")[1]), error["code"]
