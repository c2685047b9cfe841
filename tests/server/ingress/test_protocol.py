"""Bytes in, bytes out: the protocol between a pretended transport and a pretended application."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic_ns
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from server.ingress.protocol import Connection, MeasuredProtocol
from tests.support.waiting import turns

GET = b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n"
Handler = Callable[[Connection, Any, Any], Awaitable[None]]


class MockTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = b""
        self.closed = False
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("127.0.0.1", 8000), "peername": ("127.0.0.1", 1)}.get(name)

    def write(self, data: Any) -> None:
        assert not self.closed
        self.buffer += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Wire:
    """One connection to an application that lets `handler` answer."""

    def __init__(self, handler: Handler) -> None:
        self.seen: list[tuple[str, Connection]] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            connection = scope["extensions"]["streamgauge"]
            self.seen.append((scope["path"], connection))
            await handler(connection, receive, send)

        self.transport = MockTransport()
        self.protocol = MeasuredProtocol(
            config=Config(app=app, log_config=None, access_log=False, server_header=False, date_header=False),
            server_state=ServerState(),
            app_state={},
        )
        self.protocol.connection_made(self.transport)

    async def feed(self, data: bytes) -> None:
        self.protocol.data_received(data)
        await turns()

    def close(self) -> None:
        if self.protocol.timeout_keep_alive_task is not None:
            self.protocol.timeout_keep_alive_task.cancel()

    def take(self) -> bytes:
        taken, self.transport.buffer = self.transport.buffer, b""
        return taken


async def start(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def end(send: Any) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Held:
    """An answer that starts and stays open until told to end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.sends: list[Any] = []

    async def __call__(self, connection: Connection, receive: Any, send: Any) -> None:
        self.sends.append(send)
        await start(send)
        await self.may_end.wait()
        await end(send)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
async def wire(held: Held) -> AsyncIterator[Wire]:
    wire = Wire(held)
    yield wire
    held.may_end.set()
    await turns()
    wire.close()


async def finish(held: Held) -> None:
    held.may_end.set()
    await turns()


async def test_a_written_part_is_one_chunk(wire: Wire, held: Held) -> None:
    await wire.feed(GET)
    assert wire.take().startswith(b"HTTP/1.1 200 OK\r\n")
    connection = wire.seen[0][1]
    assert connection.try_write(b"data: x\n\n")
    assert wire.take() == b"9\r\ndata: x\n\n\r\n"
    assert connection.try_write(b"y" * 300)
    assert wire.take() == b"12c\r\n" + b"y" * 300 + b"\r\n"
    await finish(held)
    assert wire.take() == b"0\r\n\r\n"


async def test_nothing_is_written_before_the_answer_has_started(wire: Wire, held: Held) -> None:
    wire.protocol.data_received(GET)
    connection = wire.protocol._connection
    assert connection is not None
    assert not connection.try_write(b"x")
    assert wire.take() == b""
    await turns()
    assert connection.try_write(b"x")
    await finish(held)


async def test_nothing_is_written_after_the_answer_has_ended(wire: Wire, held: Held) -> None:
    await wire.feed(GET)
    await finish(held)
    wire.take()
    assert not wire.seen[0][1].try_write(b"x")
    assert wire.take() == b""


async def test_nothing_is_written_while_the_transport_is_paused(wire: Wire, held: Held) -> None:
    await wire.feed(GET)
    wire.take()
    wire.protocol.pause_writing()
    assert not wire.seen[0][1].try_write(b"x")
    assert wire.take() == b""
    wire.protocol.resume_writing()
    assert wire.seen[0][1].try_write(b"x")
    await finish(held)


async def test_nothing_is_written_once_the_transport_closes_or_is_lost(wire: Wire, held: Held) -> None:
    await wire.feed(GET)
    connection = wire.seen[0][1]
    wire.transport.closed = True
    assert not connection.try_write(b"x")
    wire.protocol.connection_lost(None)
    assert not connection.try_write(b"x")
    await finish(held)


async def test_nothing_is_written_into_an_answer_of_known_length() -> None:
    tried = []

    async def handler(connection: Connection, receive: Any, send: Any) -> None:
        await start(send, (b"content-length", b"2"))
        tried.append(connection.try_write(b"xx"))
        await send({"type": "http.response.body", "body": b"ok"})

    wire = Wire(handler)
    await wire.feed(GET)
    assert tried == [False]
    assert wire.take().endswith(b"\r\n\r\nok")
    wire.close()


async def test_abort_drops_the_connection(wire: Wire, held: Held) -> None:
    await wire.feed(GET)
    wire.seen[0][1].abort()
    assert wire.transport.aborted
    await finish(held)


async def test_stamps_tell_when_the_first_byte_and_the_last_came() -> None:
    bodies: list[bytes] = []

    async def handler(connection: Connection, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            bodies.append(message["body"])
            more = message["more_body"]
        await start(send)
        await end(send)

    wire = Wire(handler)
    before = monotonic_ns()
    await wire.feed(b"POST /x HTTP/1.1\r\nHo")
    between = monotonic_ns()
    await wire.feed(b"st: x\r\nContent-Length: 4\r\n\r\nab")
    (_, connection) = wire.seen[0]
    assert before <= connection.received_ns <= between
    assert connection.completed_ns == 0
    last = monotonic_ns()
    await wire.feed(b"cd")
    assert last <= connection.completed_ns <= monotonic_ns()
    assert b"".join(bodies) == b"abcd"
    wire.close()


async def test_each_request_of_a_connection_has_stamps_of_its_own(wire: Wire, held: Held) -> None:
    held.may_end.set()
    await wire.feed(GET)
    between = monotonic_ns()
    await wire.feed(GET)
    first, second = (connection for _, connection in wire.seen)
    assert first.completed_ns <= between <= second.received_ns <= second.completed_ns


async def test_pipelined_requests_are_answered_in_turn_each_by_its_own_connection(wire: Wire, held: Held) -> None:
    await wire.feed(GET + GET.replace(b"one", b"two"))
    assert [path for path, _ in wire.seen] == ["/one"]
    first = wire.seen[0][1]
    assert first.completed_ns > 0
    second = wire.protocol._connection
    assert second is not None and second is not first
    assert not second.try_write(b"overtaking")
    assert first.try_write(b"1")
    await finish(held)
    assert [path for path, _ in wire.seen] == ["/one", "/two"]
    assert wire.seen[1][1] is second
    answers = wire.take()
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.index(b"1\r\n1\r\n") < answers.rindex(b"HTTP/1.1")


async def test_a_connection_is_kept_for_the_next_request(wire: Wire, held: Held) -> None:
    held.may_end.set()
    for _ in range(3):
        await wire.feed(GET)
        assert wire.take().endswith(b"0\r\n\r\n")
        assert not wire.transport.closed


async def test_bytes_that_are_no_http_are_answered_and_the_connection_closed(wire: Wire) -> None:
    await wire.feed(b"\x16\x03\x01 hello\r\n\r\n")
    assert wire.take().startswith(b"HTTP/1.1 400")
    assert wire.transport.closed
    assert wire.seen == []
