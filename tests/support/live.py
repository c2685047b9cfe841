"""The application behind a real socket, in the test's own event loop, and a client that reads it byte by byte."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from server.app import build
from server.engine.protocol import Engine
from server.serve import http_server
from tests.support import sse
from tests.support.site import Served, settings_of
from tests.support.waiting import DEADLINE_S, until

E = TypeVar("E", bound=Engine)


class Live(Served[E]):
    """A served application that also listens on `port`."""

    port: int

    @asynccontextmanager
    async def client(self, receive_buffer: int | None = None) -> AsyncIterator["Client"]:
        client = await Client.connect(self.port, receive_buffer)
        try:
            yield client
        finally:
            client.reset()


@asynccontextmanager
async def listening(engine: E, *assignments: str, send_buffer: int | None = None) -> AsyncIterator[Live[E]]:
    """With a small `send_buffer` the kernel hides little of a client that does not read."""
    buffer = () if send_buffer is None else (f"http.send_buffer_bytes={send_buffer}",)
    settings = settings_of("http.port=0", *buffer, *assignments)
    app, services = build(settings, engine=engine)
    server = http_server(app, settings.http)
    listener = socket.create_server(("127.0.0.1", 0))
    # Its connections inherit it: asyncio sets it only where the socket names its protocol, which this one doesn't.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: services.ready or task.done())
        live = Live(app, services, engine)
        live.port = listener.getsockname()[1]
        yield live
    finally:
        server.should_exit = True
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait((task,))
    task.result()


class Client:
    """One connection. Chunks of an answer are handed out as they come: each is one write of the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def connect(cls, port: int, receive_buffer: int | None = None) -> Self:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
                reader, writer = await asyncio.open_connection(sock=sock, limit=receive_buffer or 2**16)
        except BaseException:
            sock.close()
            raise
        return cls(reader, writer)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def post(self, path: str, payload: Any, headers: Mapping[str, str] | None = None) -> None:
        self.write(request_bytes(path, payload, headers))

    def reset(self) -> None:
        """Go away without a word."""
        self._writer.transport.abort()

    async def head(self) -> int:
        """Read status and headers; returns the status."""
        async with asyncio.timeout(DEADLINE_S):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        pairs = (line.split(": ", 1) for line in lines[1:] if line)
        self.headers = {name.lower(): value for name, value in pairs}
        return self.status

    async def chunk(self) -> bytes:
        """The next chunk; empty at the answer's end."""
        async with asyncio.timeout(DEADLINE_S):
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            data = await self._reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def body(self) -> bytes:
        """All that is left of the answer."""
        if "content-length" in self.headers:
            async with asyncio.timeout(DEADLINE_S):
                return await self._reader.readexactly(int(self.headers["content-length"]))
        chunks = []
        while chunk := await self.chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    async def events(self) -> list[Any]:
        return sse.events(await self.body())

    async def closed(self) -> bytes:
        """What comes until the server closes the connection."""
        received = b""
        async with asyncio.timeout(DEADLINE_S):
            try:
                while data := await self._reader.read(2**16):
                    received += data
            except ConnectionResetError:
                pass
        return received


def request_bytes(path: str, payload: Any, headers: Mapping[str, str] | None = None) -> bytes:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    fields = {"Host": "test", "Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
