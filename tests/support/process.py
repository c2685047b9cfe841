"""The server as an operator runs it: a process of its own."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.support.live import Client

SERVER = (sys.executable, "-m", "server")
START_S = 90  # imports included, on a busy machine

IN_FOREGROUND = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class ServerProcess:
    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = await Client.connect(self.port)
        try:
            yield client
        finally:
            client.reset()

    async def get(self, path: str) -> int:
        """The status of an answer; 0 while nobody listens."""
        try:
            async with self.client() as client:
                client.write(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
                return await client.head()
        except (OSError, asyncio.IncompleteReadError):
            return 0

    async def until(self, path: str, status: int) -> None:
        async with asyncio.timeout(START_S):
            while await self.get(path) != status:
                assert self._process.returncode is None, await self.errors()
                await asyncio.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def exit_code(self, seconds: float = 30) -> int:
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    async def errors(self) -> str:
        """What it wrote to standard error, once it has ended."""
        assert self._process.stderr is not None
        async with asyncio.timeout(START_S):
            return (await self._process.stderr.read()).decode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def server_process(
    *assignments: str, port: int | None = None, model: str = "smollm2-135m", terminal: int | None = None
) -> AsyncIterator[ServerProcess]:
    """`streamgauge serve` with a scripted engine; with a `terminal`, in its foreground."""
    command = SERVER if terminal is None else (sys.executable, "-c", IN_FOREGROUND, *SERVER)
    stderr = asyncio.subprocess.PIPE
    async with launched(command, *assignments, port=port, model=model, stdin=terminal, stderr=stderr) as process:
        yield process


@asynccontextmanager
async def launched(
    command: Sequence[str],
    *assignments: str,
    port: int | None = None,
    model: str = "smollm2-135m",
    stdin: int | None = None,
    stderr: int | None = None,
) -> AsyncIterator[ServerProcess]:
    """`command serve …`, with a scripted engine; `stdin`, `stderr`: descriptors, or constants of subprocess."""
    port = port or free_port()
    sets = [argument for each in ("engine.kind=scripted", *assignments) for argument in ("--set", each)]
    process = await asyncio.create_subprocess_exec(
        *command, "serve", model, "--port", str(port), *sets, stdin=stdin, stderr=stderr
    )
    try:
        yield ServerProcess(process, port)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
