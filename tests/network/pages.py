"""What else a browser needs: a site whose pages are empty, and a wire that can be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PAGE = b"<!doctype html><title>page</title>"


@asynccontextmanager
async def page_server() -> AsyncIterator[int]:
    """The port on which an empty page is served, whatever is asked for."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\nConnection: close\r\n"
            writer.write(head.encode() + b"\r\n" + PAGE)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


class Wire:
    """Carries connections to a port. `cut` severs those there are, `allow` the next after so many bytes of answer."""

    def __init__(self) -> None:
        self.port = 0
        self.cuts = 0
        self._allowance: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        self.cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    def allow(self, answer_bytes: int) -> None:
        self._allowance = answer_bytes

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: int) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", to)
        ends = {writer, back}
        self._writers |= ends
        tasks = [asyncio.create_task(self._copy(reader, back)), asyncio.create_task(self._copy(there, writer, True))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for end in ends:
                end.close()
            self._writers -= ends

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(2**16):
                if answer and self._allowance is not None:
                    data, over = data[: self._allowance], len(data) > self._allowance
                    self._allowance = None if over else self._allowance - len(data)
                    if over:
                        writer.write(data)
                        await writer.drain()
                        self.cuts += 1
                        return
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def wire(to: int) -> AsyncIterator[Wire]:
    made = Wire()
    async with await asyncio.start_server(lambda r, w: made.carry(r, w, to), "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made
        made.cut()
