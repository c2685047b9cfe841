"""Clients that break the rules of HTTP, on real sockets: refused or cut off, alone."""

import asyncio
import gc
import json
import logging
import os
import re
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from tests.server.conftest import MakeScripted
from tests.support import sse
from tests.support.engines import FakeEngine
from tests.support.live import Live, listening, request_bytes
from tests.support.site import CHAT, chat
from tests.support.waiting import DEADLINE_S, until

LIVE = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"
SHORT = ("http.header_timeout=0.3", "http.body_timeout=0.3", "http.idle_timeout=1", "http.max_body_bytes=100000")
HEAD = b"GET /live HTTP/1.1\r\nHost: x\r\n"
POST = b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

ABUSE: dict[str, bytes] = {
    "a megabyte of url": b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a megabyte of one header": HEAD + b"A: " + b"x" * 1_000_000 + b"\r\n\r\n",
    "20,000 headers": HEAD + b"A: b\r\n" * 20_000 + b"\r\n",
    "half a request line": b"GET /li",
    "half a header": HEAD + b"Authorizat",
    "half a body": POST + b"Content-Length: 100\r\n\r\n{",
    "half a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n64\r\n{",
    "length and chunks": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunks by another name": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a huge length": POST + b"Content-Length: 18446744073709551615\r\n\r\n{",
    "a length in words": POST + b"Content-Length: ten\r\n\r\n{",
    "a return in a value": HEAD + b"A: b\rB: c\r\n\r\n",
    "a newline in a value": HEAD + b"A: b\nB\r\n\r\n",
    "a bad host": b"GET /live HTTP/1.1\r\nHost: x/?\r\n\r\n",
    "another bad host": b"GET /live HTTP/1.1\r\nHost: x/#\r\n\r\n",
    "no host": b"GET /live HTTP/1.1\r\n\r\n",
    "garbage": bytes(range(256)) * 100,
    "a tls hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "http 0.9": b"GET /live\r\n\r\n",
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
    "a dialect": b"GET /live RTSP/2.0\r\n\r\n",
    "trace": b"TRACE /live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "connect": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a proxy's request": b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a path upwards": b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a nul in the path": b"GET /%00%ff%c0%ae HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a websocket": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    "blank lines": b"\r\n" * 10_000,
    "nothing": b"",
}
MAY_SUCCEED = {"a websocket"}  # the upgrade is ignored


@pytest.fixture
async def live(engine: FakeEngine) -> AsyncIterator[Live[FakeEngine]]:
    async with listening(engine, *SHORT) as live:
        yield live


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


def complaints(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info]


@pytest.mark.parametrize("case", ABUSE)
async def test_each_is_refused_or_cut_off_and_nobody_else_notices(
    live: Live[FakeEngine], case: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with live.client() as stream, live.client() as client:
        stream.post(CHAT, chat(stream=True))
        sequence = await live.engine.sequence()
        sequence.say("one")
        assert await stream.head() == 200
        client.write(ABUSE[case])
        received = await client.closed()
        assert all(200 <= status < 300 if case in MAY_SUCCEED else 400 <= status < 500 for status in statuses(received))
        assert b"Traceback" not in received
        sequence.say(" two")
        sequence.end()
        assert sse.text_of(await stream.events()) == "one two"
    assert complaints(caplog) == []


@pytest.mark.parametrize("size, status", [(31_000, 200), (33_000, 431)])
async def test_the_default_leaves_32_kib_for_headers(engine: FakeEngine, size: int, status: int) -> None:
    async with listening(engine) as live, live.client() as client:
        client.write(HEAD + b"A: " + b"x" * size + b"\r\n\r\n")
        assert await client.head() == status


async def test_a_byte_at_a_time_is_too_slow(live: Live[FakeEngine]) -> None:
    async with live.client() as client:
        answer = asyncio.create_task(client.head())
        for byte in HEAD + b"A: " + b"x" * 500:
            if answer.done():
                break
            client.write(bytes([byte]))
            await asyncio.sleep(0.02)
        assert await answer == 408


async def test_a_head_that_drips_is_told_it_took_too_long(live: Live[FakeEngine]) -> None:
    async with live.client() as client:
        client.write(LIVE[:5])
        assert await client.head() == 408
        assert json.loads(await client.closed())["error"]["code"] == "header_timeout"


async def test_an_answered_connection_is_closed_when_idle(live: Live[FakeEngine]) -> None:
    async with live.client() as client:
        client.write(LIVE)
        assert await client.head() == 200
        await client.body()
        assert await client.closed() == b""


async def test_a_thousand_pipelined_requests_are_answered_in_part(live: Live[FakeEngine]) -> None:
    async with live.client() as client:
        client.write(LIVE * 1000)
        found = statuses(await client.closed())
        assert 1 <= len(found) < 1000
        assert set(found) == {200}


async def test_an_http_1_0_client_reads_a_stream_without_chunks(live: Live[FakeEngine]) -> None:
    async with live.client() as client:
        client.write(request_bytes(CHAT, chat(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        sequence = await live.engine.sequence()
        for word in ("one", " two", " three"):
            sequence.say(word)
            await asyncio.sleep(0)
        sequence.end()
        assert await client.head() == 200
        assert "transfer-encoding" not in client.headers
        assert client.headers["connection"] == "close"
        found = sse.events(await client.closed())
        assert sse.text_of(found) == "one two three"
        assert found[-1] == sse.DONE


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def visit(port: int, kind: int) -> None:
    """Connect, and leave in one of many ways."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        async with asyncio.timeout(DEADLINE_S):
            await loop.sock_connect(sock, ("127.0.0.1", port))
            match kind % 6:
                case 0:  # politely
                    await loop.sock_sendall(sock, LIVE)
                    assert (await loop.sock_recv(sock, 100)).startswith(b"HTTP/1.1 200")
                case 1:  # by a reset
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                case 2:  # in the middle of a head
                    await loop.sock_sendall(sock, HEAD)
                case 3:  # in the middle of a body
                    await loop.sock_sendall(sock, POST + b"Content-Length: 10\r\n\r\n{")
                case 4:  # with a protocol of its own
                    await loop.sock_sendall(sock, ABUSE["a tls hello"])
                case 5:  # before its answer
                    await loop.sock_sendall(sock, request_bytes(CHAT, chat(max_tokens=2)))
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("visits", [300, pytest.param(5000, marks=[pytest.mark.long, pytest.mark.timeout(300)])])
async def test_no_visitor_leaves_a_file_open(
    scripted: MakeScripted, visits: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(scripted(), *SHORT) as live:
        await visit(live.port, 0)
        before = open_files()
        for start in range(0, visits, 50):
            await asyncio.gather(*(visit(live.port, start + number) for number in range(50)))
        await until(lambda: open_files() <= before)
        await until(lambda: live.idle)
        await visit(live.port, 0)
    assert complaints(caplog) == []
