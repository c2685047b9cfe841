"""Compressed request bodies: RFC 9110's content codings, inflated in steps of bounded size and up to a bound."""

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping
from time import monotonic

import brotli  # type: ignore[import-untyped]
import zstandard

from server.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType

RATIO_FLOOR_BYTES = 64 << 10  # what a body may always inflate to: short ones repeat themselves a lot
STEP_BYTES = 64 << 10
ZSTD_STEP_BYTES = 128  # of input: its API bounds no output, but 4 bytes make at most a block of 128 KiB
ZSTD_WINDOW_BYTES = 8 << 20  # RFC 8878 asks every decoder for as much
BLOCKING_S = 0.002  # how long the loop may be held up at a time


def coding_of(header: str | None) -> str | None:
    """The coding that a Content-Encoding header names, None for none; raises UnsupportedMediaType."""
    name = (header or "identity").strip().lower()
    if name == "identity":
        return None
    if name not in _INFLATE:
        raise UnsupportedMediaType(
            "The request body's Content-Encoding must be one of gzip, zstd, br and identity.",
            code="unsupported_content_encoding",
        )
    return name


async def inflate(body: bytes, coding: str, *, max_bytes: int, max_ratio: int) -> bytes:
    """`body` without its coding. Leaves the loop to others every few milliseconds.

    Raises BodyTooLarge past `max_bytes`, or past `max_ratio` times its own size; InvalidRequest when it is cut off,
    corrupt, or longer than its compressed data.
    """
    limit = min(max_bytes, max(RATIO_FLOOR_BYTES, len(body) * max_ratio))
    pieces: list[bytes] = []
    size = 0
    since = monotonic()
    try:
        for piece in _INFLATE[coding](memoryview(body)):
            size += len(piece)
            if size > limit:
                raise BodyTooLarge("The request body is too large once decompressed.")
            pieces.append(piece)
            if monotonic() - since > BLOCKING_S:
                await asyncio.sleep(0)
                since = monotonic()
    except (_Broken, zlib.error, zstandard.ZstdError, brotli.error):
        raise InvalidRequest(
            f"The request body is not what its Content-Encoding says: {coding}.", code="invalid_content_encoding"
        ) from None
    return b"".join(pieces)


class _Broken(Exception):
    """The compressed data does not end where the body does."""


def _slices(body: memoryview, size: int) -> Iterator[memoryview]:
    return (body[start : start + size] for start in range(0, len(body), size))


def _gunzip(body: memoryview) -> Iterator[bytes]:
    inflater = zlib.decompressobj(wbits=31)
    for data in _slices(body, STEP_BYTES):
        if inflater.eof:
            raise _Broken
        rest: memoryview | bytes = data
        while True:
            piece = inflater.decompress(rest, STEP_BYTES)
            rest = inflater.unconsumed_tail
            yield piece
            if len(piece) < STEP_BYTES:
                break
    if not inflater.eof or inflater.unused_data:
        raise _Broken


def _unzstd(body: memoryview) -> Iterator[bytes]:
    inflater = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).decompressobj()
    for data in _slices(body, ZSTD_STEP_BYTES):
        if inflater.eof:
            raise _Broken
        yield inflater.decompress(data)
    if not inflater.eof or inflater.unused_data:
        raise _Broken


def _unbrotli(body: memoryview) -> Iterator[bytes]:
    inflater = brotli.Decompressor()
    for data in _slices(body, STEP_BYTES):
        piece = inflater.process(data, output_buffer_limit=STEP_BYTES)  # raises when there is more than the stream
        yield piece
        while piece and not inflater.is_finished():  # its can_accept_more_data is true while output is held back
            piece = inflater.process(b"", output_buffer_limit=STEP_BYTES)
            yield piece
    if not inflater.is_finished():
        raise _Broken


_INFLATE: Mapping[str, Callable[[memoryview], Iterator[bytes]]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "zstd": _unzstd,
    "br": _unbrotli,
}
