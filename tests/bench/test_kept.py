import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bench.kept import kept_connection
from tests.support.waiting import turns, until

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[tuple[tuple[str, int], list[asyncio.StreamWriter]]]:
    """Its address, and the connections it got. At the end it waits for its last connection to be closed."""
    connections: list[asyncio.StreamWriter] = []
    closed: list[asyncio.StreamWriter] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await serve(reader, writer)
        writer.close()
        closed.append(writer)

    async with await asyncio.start_server(on_connection, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname(), connections
        await until(lambda: len(closed) == len(connections))
        await turns()


def refusing(times: int) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(REFUSAL)

    return serve


async def test_requests_share_one_connection() -> None:
    async with serving(refusing(3)) as (address, connections), kept_connection(*address) as connection:
        errors = [(await connection.send("/", b"{}")).error for _ in range(3)]
    assert errors == ["http 503"] * 3
    assert len(connections) == 1


async def test_a_connection_that_the_server_closes_is_told_as_cut() -> None:
    async with serving(refusing(1)) as (address, _), kept_connection(*address) as connection:
        errors = [(await connection.send("/", b"{}")).error for _ in range(2)]
    assert errors == ["http 503", "cut"]


async def test_an_answer_that_does_not_come_ends_with_the_deadline() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent) as (address, _), kept_connection(*address) as connection:
        assert (await connection.send("/", b"{}", deadline_s=0.05)).error == "deadline"
