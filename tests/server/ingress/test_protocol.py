"""Bytes in, bytes out: the protocol between a pretended transport and a pretended application."""

from collections.abc import AsyncIterator
from time import monotonic_ns
from typing import Any

import pytest

from server.ingress.connection import Connection
from tests.server.ingress.wire import GET, Held, Wire, end, start
from tests.support.waiting import turns


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


async def test_who_waits_for_it_is_told_that_the_client_has_gone(wire: Wire, held: Held) -> None:
    told = []
    await wire.feed(GET + GET.replace(b"one", b"two"))
    connection, behind = wire.seen[0][1], wire.protocol._connection
    assert behind is not None
    behind.when_lost(lambda: told.append("behind"))
    connection.when_lost(lambda: told.append("before"))
    connection.when_lost(lambda: told.append("now"))
    assert told == []
    wire.protocol.connection_lost(None)
    assert told == ["now"]
    connection.when_lost(lambda: told.append("late"))
    assert told == ["now", "late"]
    await finish(held)


async def test_nobody_is_told_of_a_client_that_has_its_answer(wire: Wire, held: Held) -> None:
    told = []
    await wire.feed(GET)
    wire.seen[0][1].when_lost(lambda: told.append("gone"))
    await finish(held)
    wire.protocol.connection_lost(None)
    assert told == []


async def test_nobody_is_told_who_no_longer_asks(wire: Wire, held: Held) -> None:
    told = []
    await wire.feed(GET)
    wire.seen[0][1].when_lost(lambda: told.append("gone"))
    wire.seen[0][1].when_lost(None)
    wire.protocol.connection_lost(None)
    assert told == []
    await finish(held)


async def test_a_connection_is_kept_for_the_next_request(wire: Wire, held: Held) -> None:
    held.may_end.set()
    for _ in range(3):
        await wire.feed(GET)
        assert wire.take().endswith(b"0\r\n\r\n")
        assert not wire.transport.closed


async def test_bytes_that_are_no_http_are_answered_and_the_connection_closed(wire: Wire) -> None:
    await wire.feed(b"\x16\x03\x01 hello\r\n\r\n")
    assert wire.take().startswith(b"HTTP/1.1 400")
    assert wire.transport.ended
    assert wire.seen == []
