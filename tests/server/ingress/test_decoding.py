"""Compressed bodies: whole or refused, and never larger on the way than they may be in the end."""

import gzip
import os
import tracemalloc
import zlib
from collections.abc import Callable, Mapping

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from server.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType
from server.ingress import decoding
from server.ingress.decoding import RATIO_FLOOR_BYTES, coding_of, inflate

COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "zstd": zstandard.compress,
    "br": brotli.compress,
}
MIB = 1 << 20
CODINGS = pytest.mark.parametrize("coding", COMPRESS)


async def inflated(body: bytes, coding: str, *, max_bytes: int = MIB, max_ratio: int = 1_000_000) -> bytes:
    return await inflate(body, coding, max_bytes=max_bytes, max_ratio=max_ratio)


async def refusal(body: bytes, coding: str) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        await inflated(body, coding)
    assert caught.value.status == 400
    return caught.value.code


@CODINGS
@pytest.mark.parametrize("size", [0, 1, 1000, 65536, 65537, MIB])
@pytest.mark.parametrize("kind", [os.urandom, bytes], ids=["noise", "zeros"])
async def test_a_body_comes_out_as_it_went_in(coding: str, size: int, kind: Callable[[int], bytes]) -> None:
    body = kind(size)
    assert await inflated(COMPRESS[coding](body), coding) == body


@CODINGS
async def test_a_body_may_inflate_to_the_bound_and_not_a_byte_further(coding: str) -> None:
    assert len(await inflated(COMPRESS[coding](bytes(MIB)), coding)) == MIB
    with pytest.raises(BodyTooLarge):
        await inflated(COMPRESS[coding](bytes(MIB + 1)), coding)


@CODINGS
async def test_the_ratio_counts_beyond_what_a_body_may_always_inflate_to(coding: str) -> None:
    assert await inflated(COMPRESS[coding](bytes(RATIO_FLOOR_BYTES)), coding, max_ratio=1)
    with pytest.raises(BodyTooLarge):
        await inflated(COMPRESS[coding](bytes(RATIO_FLOOR_BYTES + 1)), coding, max_ratio=1)
    noise = os.urandom(2 * RATIO_FLOOR_BYTES)
    assert await inflated(COMPRESS[coding](noise), coding, max_ratio=2) == noise


@CODINGS
async def test_a_body_that_is_cut_off_is_refused_wherever_the_cut_is(coding: str) -> None:
    whole = COMPRESS[coding](os.urandom(200) + bytes(200))
    for end in range(len(whole)):
        assert await refusal(whole[:end], coding) == "invalid_content_encoding"


@CODINGS
@pytest.mark.parametrize("rest", [b"\0", b"more", bytes(100_000)])
async def test_what_follows_the_compressed_data_is_refused(coding: str, rest: bytes) -> None:
    assert await refusal(COMPRESS[coding](b"body") + rest, coding) == "invalid_content_encoding"


@CODINGS
@given(noise=st.binary(max_size=300), start=st.integers(0, 300))
async def test_any_damage_is_found_or_harmless(coding: str, noise: bytes, start: int) -> None:
    whole = COMPRESS[coding](bytes(range(256)) * 4)
    damaged = whole[:start] + noise + whole[start + len(noise) :]
    try:
        await inflated(damaged, coding)
    except (InvalidRequest, BodyTooLarge) as error:
        assert error.status in (400, 413)


def bomb(coding: str, size: int) -> bytes:
    """`size` zeros, made piece by piece."""
    zeros = bytes(MIB)
    if coding == "br":
        packer = brotli.Compressor(quality=5)
        return b"".join([*(packer.process(zeros) for _ in range(size // MIB)), packer.finish()])
    encoder = zstandard.ZstdCompressor().compressobj() if coding == "zstd" else zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(encoder.compress(zeros) for _ in range(size // MIB)), encoder.flush()])


@CODINGS
async def test_a_bomb_costs_no_more_memory_than_a_body(coding: str) -> None:
    packed = bomb(coding, 256 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            await inflated(packed, coding, max_bytes=4 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
def test_no_step_makes_more_than_a_few_mebibytes(coding: str) -> None:
    steps = decoding._INFLATE[coding](memoryview(bomb(coding, 64 * MIB)))
    assert max(len(piece) for piece in steps) <= 4 * MIB


async def test_a_zstd_frame_that_wants_a_huge_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert await refusal(packer.compress(b"x" * 1000) + packer.flush(), "zstd") == "invalid_content_encoding"


@pytest.mark.parametrize("header", [None, "identity", " Identity ", ""])
def test_no_coding_is_none(header: str | None) -> None:
    assert coding_of(header) is None


@pytest.mark.parametrize("header", ["gzip", " GZIP", "x-gzip", "zstd", "br"])
def test_a_coding_is_named_in_any_case(header: str) -> None:
    assert coding_of(header) == header.strip().lower()


@pytest.mark.parametrize(
    "header", ["deflate", "compress", "gzip, gzip", "gzip,identity", "*", "gzip;q=1", "x" * 10_000]
)
def test_any_other_coding_is_refused(header: str) -> None:
    with pytest.raises(UnsupportedMediaType) as caught:
        coding_of(header)
    assert (caught.value.status, caught.value.code) == (415, "unsupported_content_encoding")
