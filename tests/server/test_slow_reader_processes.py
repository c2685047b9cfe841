"""A client that the operating system has stopped costs the server little memory, and only for as long as it may stall.

The record tells that the stream was parked and its request given up: its time went into `send`, and its tokens end far
from the limit.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.process import ServerProcess, server_process
from tests.support.site import CHAT, chat
from tests.support.waiting import DEADLINE_S

SEND_TIMEOUT_S = 1
TOKENS = 3_000_000
SENT = 1 << 20  # bytes the client reads before it stops: more than any buffer on the way takes
PAGE = os.sysconf("SC_PAGE_SIZE")

READER = """
import socket, sys, time
port, size, request = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
sock = socket.socket()
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
sock.settimeout(60)
sock.connect(("127.0.0.1", port))
sock.sendall(request)
while size > 0:
    data = sock.recv(65536)
    assert data
    size -= len(data)
print("stopping", flush=True)
time.sleep(60)
"""


@asynccontextmanager
async def stopped_reader(server: ServerProcess) -> AsyncIterator[None]:
    """A process that reads a stream's first part and is then stopped."""
    body = json.dumps(chat(stream=True, max_tokens=TOKENS))
    request = (
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, str(server.port), str(SENT), request + body, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert reader.stdout is not None
        async with asyncio.timeout(3 * DEADLINE_S):
            assert await reader.stdout.readline() == b"stopping\n"
        reader.send_signal(signal.SIGSTOP)
        yield
    finally:
        reader.kill()
        await reader.communicate()


async def get(server: ServerProcess, path: str) -> bytes:
    async with server.client() as client:
        client.write(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        assert await client.head() == 200
        return await client.body()


async def cuts(server: ServerProcess) -> dict[str, float]:
    found = re.findall(rb'streamgauge_stream_cuts_total\{reason="(\w+)"\} (\S+)', await get(server, "/metrics"))
    return {reason.decode(): float(count) for reason, count in found}


def resident(server: ServerProcess) -> int:
    """Bytes of memory that the server has in use."""
    return int(Path(f"/proc/{server._process.pid}/statm").read_text().split()[1]) * PAGE


async def records(server: ServerProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await get(server, "/debug/requests"))["requests"]
    return found


async def test_a_stopped_client_is_cut_off_and_costs_little_memory() -> None:
    async with server_process(
        "engine.scripted.step_ms=0",
        f"engine.scripted.max_model_len={2 * TOKENS}",
        f"http.send_timeout={SEND_TIMEOUT_S}",
        "telemetry.log_level=error",
    ) as server:
        await server.until("/ready", 200)
        async with stopped_reader(server):
            before = most = resident(server)
            async with asyncio.timeout(3 * DEADLINE_S):
                while not (await cuts(server))["send_timeout"]:
                    most = max(most, resident(server))
                    await asyncio.sleep(0.05)
            assert most - before < 10_000_000
            (record,) = await records(server)
        assert record["outcome"] == "slow_reader"
        assert record["stages_ms"]["send"] >= SEND_TIMEOUT_S * 1000
        assert 0 < record["output_tokens"] < TOKENS
        assert await cuts(server) == {"send_timeout": 1, "backlog": 0}
