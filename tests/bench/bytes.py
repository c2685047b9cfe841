"""Responses as a server would put them on the wire, and ways to cut them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

import orjson

from bench.client import ResponseReader
from bench.sample import RequestSample

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def chat_event(text: str, index: int = 0, finish: str | None = None, **delta: object) -> bytes:
    choice = {"index": index, "delta": {"content": text, **delta}, "finish_reason": finish}
    return event({"object": "chat.completion.chunk", "choices": [choice]})


def usage_event(tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}})


def event(payload: object) -> bytes:
    return b"data: " + orjson.dumps(payload) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def cuts_in_two(data: bytes) -> Iterator[list[bytes]]:
    return ([data[:cut], data[cut:]] for cut in range(len(data) + 1))


def single_bytes(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


def read_all(pieces: Iterable[bytes]) -> RequestSample:
    """What the reader makes of these reads; the n-th has stamp n, the end of the connection comes after them."""
    reader = ResponseReader(RequestSample(sent_ns=0))
    stamp = 0
    for stamp, piece in enumerate(pieces, start=1):
        if reader.feed(piece, stamp):
            break
    reader.eof(stamp + 1)
    return reader.sample


Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@asynccontextmanager
async def playing(*pieces: bytes, hold_open: bool = False) -> AsyncIterator[int]:
    """A server that answers every request with these bytes, piece by piece, and then closes (or never does)."""
    release = asyncio.Event()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(maxsplit=1)[0])
        await reader.readexactly(length)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        if hold_open:
            await release.wait()
        writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        release.set()
        server.close()
