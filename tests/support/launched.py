"""The server as a process that something is odd about: its output, or its clock."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.support.process import ServerProcess, free_port
from tests.support.site import MODEL

SERVER = (sys.executable, "-m", "server")


@asynccontextmanager
async def launched(
    command: Sequence[str], *assignments: str, stderr: int | None = None
) -> AsyncIterator[ServerProcess]:
    """`command serve …`, with a scripted engine; `stderr`: a file descriptor, or one of subprocess' constants."""
    port = free_port()
    sets = [argument for each in ("engine.kind=scripted", *assignments) for argument in ("--set", each)]
    process = await asyncio.create_subprocess_exec(
        *command, "serve", MODEL, "--port", str(port), *sets, stdin=asyncio.subprocess.DEVNULL, stderr=stderr
    )
    try:
        yield ServerProcess(process, port)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
