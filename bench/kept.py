"""A connection that is kept for one request after the other, as most clients keep theirs."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from bench.client import ResponseReader
from bench.sample import RequestSample
from bench.wire import request_bytes

READ_BYTES = 1 << 16


class KeptConnection:
    def __init__(self, address: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer

    async def send(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None, deadline_s: float = 600.0
    ) -> RequestSample:
        """Sends a request once the one before it has been answered. Failures are in the sample, not raised."""
        sample = RequestSample()
        response = ResponseReader(sample)
        request = request_bytes(*self._address, path, body, headers or {})
        try:
            async with asyncio.timeout(deadline_s):
                await self._exchange(request, response)
        except TimeoutError:
            response.abandon("deadline", f"no complete response within {deadline_s} s")
        except OSError as error:
            response.abandon("cut", str(error))
        return sample

    async def _exchange(self, request: bytes, response: ResponseReader) -> None:
        response.sample.sent_ns = time.monotonic_ns()
        self._writer.write(request)
        while not response.finished:
            if data := await self._reader.read(READ_BYTES):
                response.feed(data, time.monotonic_ns())
            else:
                response.eof(time.monotonic_ns())


@asynccontextmanager
async def kept_connection(host: str, port: int, deadline_s: float = 60.0) -> AsyncIterator[KeptConnection]:
    """Raises OSError or TimeoutError when there is no connection to be had."""
    async with asyncio.timeout(deadline_s):
        reader, writer = await asyncio.open_connection(host, port)
    try:
        yield KeptConnection((host, port), reader, writer)
    finally:
        writer.transport.abort()
