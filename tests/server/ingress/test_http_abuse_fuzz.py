"""Requests bent at random: never a server error, never a connection that stays, never a trace in the log."""

import asyncio
import gzip
import json
import logging
import os
import random
import re
from itertools import pairwise

import pytest

from server.engine.scripted_engine import ScriptedEngine
from tests.server.conftest import MakeScripted
from tests.support.live import Client, Live, listening
from tests.support.site import CHAT, COMPLETIONS, chat, completion
from tests.support.waiting import until

LONG = os.environ.get("STREAMGAUGE_LONG") == "1"
CASES = 20_000 if LONG else 600
AT_ONCE = 60
SHORT = ("http.header_timeout=0.2", "http.body_timeout=0.2", "http.idle_timeout=1", "http.max_body_bytes=65536")

METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT", b"BREW", b"")
PATHS = tuple(
    path.encode()
    for path in (CHAT, COMPLETIONS, "/v1/messages", "/v1/responses", "/v1/models", "/live", "/metrics", "*", "/%00%zz")
)
VERSIONS = (b"HTTP/1.1",) * 6 + (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/9", b"")
HEADERS = (
    b"Host: a\r\nHost: b",
    b"Connection: close",
    b"Connection: keep-alive, upgrade\r\nUpgrade: h2c",
    b"Expect: 100-continue",
    b"Content-Encoding: gzip",
    b"Content-Encoding: br",
    b"Accept-Encoding: gzip, br, zstd",
    b"Content-Length: 5",
    b"Content-Length: -0",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity, chunked",
    b"X-Forwarded-For: 127.0.0.1",
    b"X-Request-Id: \x1b[2J",
    b"Content-Encoding: rot13",
    b"Cookie: " + b"c" * 5000,
    b"Cookie: " + b"c" * 40_000,
    b"A: b\r\n" * 200 + b"A: b",
    b": nameless",
    b"Name",
    b" folded",
)
BODIES = (
    json.dumps(chat(max_tokens=2)).encode(),
    json.dumps(chat(max_tokens=2, stream=True)).encode(),
    json.dumps(completion(max_tokens=2, n=2)).encode(),
    gzip.compress(json.dumps(chat(max_tokens=2)).encode()),
    gzip.compress(bytes(1 << 20)),
    b"[" * 10_000,
    b"x" * 100_000,
    b"",
)


def request_of(dice: random.Random) -> bytes:
    """Mostly a request."""
    body = dice.choice(BODIES)
    method = dice.choice((b"POST", b"POST", dice.choice(METHODS)))
    lines = [b" ".join((method, dice.choice(PATHS), dice.choice(VERSIONS)))]
    lines += [b"Host: x"] * (dice.random() < 0.95)
    lines += [b"Content-Type: application/json"]
    lines += dice.sample(HEADERS, dice.choice((0, 0, 1, 2, 4)))
    if dice.random() < 0.7:
        lines.append(b"Content-Length: %d" % len(body))
    elif dice.random() < 0.7:
        lines.append(b"Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def bend(data: bytes, dice: random.Random) -> bytes:
    place, length = dice.randrange(len(data) + 1), dice.choice((1, 2, 10, 1000))
    match dice.randrange(6):
        case 0:
            return data[:place] + data[place + length :]
        case 1:
            return data[:place] + data[place : place + length] * 2 + data[place + length :]
        case 2:
            return data[:place] + dice.randbytes(length) + data[place:]
        case 3:
            return data[:place] + dice.choice((b"\r", b"\n", b"\r\n\r\n", b"\0", b":")) + data[place:]
        case 4:
            return data[:place]
        case _:
            return data


async def attack(live: Live[ScriptedEngine], seed: int) -> bytes:
    """One connection's worth; returns what it was answered."""
    dice = random.Random(seed)
    data = b"".join(bend(request_of(dice), dice) for _ in range(dice.choice((1, 1, 2, 5))))
    async with live.client() as client:
        cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 1, 3, 20))))
        for start, stop in pairwise((0, *cuts, len(data))):
            if client._writer.is_closing():
                break
            client.write(data[start:stop])
            await asyncio.sleep(dice.choice((0, 0, 0.01)))
        if dice.random() < 0.1:
            return b""
        try:
            return await client.closed()
        except BrokenPipeError:  # it was told, and went on writing
            return b""


async def control(live: Live[ScriptedEngine]) -> None:
    client = await Client.connect(live.port)
    client.post(CHAT, chat(max_tokens=2))
    assert await client.head() == 200
    client.reset()


@pytest.mark.timeout(3000 if LONG else 120)
async def test_bent_requests_end_in_no_server_error(scripted: MakeScripted, caplog: pytest.LogCaptureFixture) -> None:
    seen: set[int] = set()
    async with listening(scripted(), *SHORT) as live:
        for first in range(0, CASES, AT_ONCE):
            attacks = [attack(live, seed) for seed in range(first, first + AT_ONCE)]
            answers = await asyncio.gather(*attacks)
            for seed, answer in enumerate(answers, first):
                found = [int(status) for status in re.findall(rb"^HTTP/1\.1 (\d{3}) ", answer, re.MULTILINE)]
                assert all(status < 500 for status in found), (seed, answer)
                seen.update(found)
            await control(live)
        await until(lambda: live.idle)
        assert live.engine.in_flight == 0
    assert seen >= {200, 400, 408, 413, 431, 404, 405, 415}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info] == []
