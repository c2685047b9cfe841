"""A server under test as a process of its own: started, waited for, stopped, never left behind."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.procfs import alive, descendants

HOST = "127.0.0.1"
POLL_S = 0.25
LOG_TAIL_CHARS = 2000


class ArmError(Exception):
    """The server of an arm didn't come up."""


@dataclass(frozen=True)
class Arm:
    """`{port}` in `argv` stands for the port. `env` is the whole environment, nothing is inherited."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    health_path: str = "/health"


@dataclass(frozen=True)
class Running:
    pid: int
    port: int
    ready_s: float


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def running(arm: Arm, log: Path, *, ready_deadline_s: float, stop_deadline_s: float) -> AsyncIterator[Running]:
    """The arm's server from the moment it is healthy; stopped on the way out."""
    port = free_port()
    started = time.monotonic()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(part.replace("{port}", str(port)) for part in arm.argv),
            env=dict(arm.env),
            cwd=arm.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # A group of its own, so that stopping it can reach its workers and nobody else.
            start_new_session=True,
        )
    try:
        await _until_healthy(process, arm, port, log, ready_deadline_s)
        yield Running(process.pid, port, time.monotonic() - started)
    finally:
        await stop(process, stop_deadline_s)


async def _until_healthy(
    process: asyncio.subprocess.Process, arm: Arm, port: int, log: Path, deadline_s: float
) -> None:
    deadline = time.monotonic() + deadline_s
    while await http_status(port, arm.health_path) != 200:
        if process.returncode is not None:
            raise ArmError(f"{arm.name} exited with {process.returncode} before it was healthy:\n{_tail(log)}")
        if time.monotonic() > deadline:
            raise ArmError(f"{arm.name} was not healthy within {deadline_s} s:\n{_tail(log)}")
        await asyncio.sleep(POLL_S)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-LOG_TAIL_CHARS:]


async def stop(process: asyncio.subprocess.Process, deadline_s: float) -> None:
    """Asks the server to end; what is left of its group after the deadline is killed.

    Returns only when its engine is gone too: a lingering one would take CPU from the next arm.
    """
    family = [process.pid, *descendants(process.pid)]
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(deadline_s):
            await process.wait()
            await _until_gone(family)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _until_gone(pids: Iterable[int]) -> None:
    for pid in pids:
        # Polled: nobody tells of the end of a process that isn't our own child.
        while alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


async def http_status(port: int, path: str) -> int | None:
    """None when there is no answer (yet)."""
    try:
        return (await get(port, path))[0]
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, TimeoutError):
        return None


async def served_model(port: int) -> str:
    _, body = await get(port, "/v1/models")
    name: str = orjson.loads(body)["data"][0]["id"]
    return name


async def get(port: int, path: str) -> tuple[int, bytes]:
    """Status and body. Raises OSError, TimeoutError, or ValueError and IndexError for what is no HTTP."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            # HTTP/1.0: the answer is neither chunked nor kept alive.
            writer.write(f"GET {path} HTTP/1.0\r\nHost: {HOST}:{port}\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            return int(head.split(maxsplit=2)[1]), body
        finally:
            writer.close()
