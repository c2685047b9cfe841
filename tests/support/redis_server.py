"""A redis-server of the test's own: started, stopped, killed and brought back at will."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.support.process import free_port
from tests.support.waiting import DEADLINE_S


class RedisServer:
    """`client` is the test's own way in, past everything that is tested."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url = f"redis://127.0.0.1:{port}/0"
        self.client = Redis.from_url(self.url, socket_timeout=DEADLINE_S)
        self._options = f"--port {port} --bind 127.0.0.1 --appendonly no --dir {folder} --loglevel warning".split()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            "redis-server", *self._options, "--save", "", stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if await self._answers():
                    return
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def stop(self) -> None:
        """It stays connected and answers nothing, until it may `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def _answers(self) -> bool:
        assert self._process is not None and self._process.returncode is None, "redis-server has ended"
        try:
            return bool(await self.client.ping())
        except RedisError:
            return False


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server here (Debian: apt-get install redis-server)")
    server = RedisServer(free_port(), folder)
    try:
        await server.start()
        yield server
    finally:
        await server.client.aclose()
        await server.kill()
