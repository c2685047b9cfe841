"""A server that runs out of file descriptors turns connections away, says so briefly, and recovers."""

import asyncio
import resource
import signal

from tests.support.live import Client, request_bytes
from tests.support.process import ServerProcess, server_process
from tests.support.site import CHAT, chat

FILES = 128
CONNECTIONS = 300


async def connected(server: ServerProcess) -> Client | None:
    try:
        return await Client.connect(server.port)
    except OSError:
        return None


async def test_a_server_without_file_descriptors_recovers() -> None:
    async with server_process("telemetry.log=json") as server:
        await server.until("/ready", 200)
        resource.prlimit(server._process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        held = [client for client in [await connected(server) for _ in range(CONNECTIONS)] if client is not None]
        assert len(held) > FILES
        for client in held[:20]:
            client.write(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await client.head() == 200  # those who came in time notice nothing
        await asyncio.sleep(1)
        for client in held:
            client.reset()
        await server.until("/live", 200)
        async with server.client() as client:
            client.write(request_bytes(CHAT, chat(max_tokens=2)))
            assert await client.head() == 200
        server.signal(signal.SIGTERM)
        assert await server.exit_code() == 0
        lines = (await server.errors()).splitlines()
        assert len(lines) < 100
        assert all(line.startswith("{") for line in lines)  # no traceback
