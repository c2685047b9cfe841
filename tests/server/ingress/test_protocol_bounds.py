"""What a connection may cost, and how one that costs more is ended: bytes and a pretended clock in, bytes out."""

import asyncio
import socket
from time import monotonic_ns
from typing import Any

import pytest

from server.config import HttpSettings
from server.ingress.connection import Connection
from server.ingress.protocol import LINGER_S, MAX_PIPELINED
from server.ingress.sweeper import Sweeper
from tests.server.ingress.wire import CHUNKED, GET, LIMITS, POST, Held, Reader, Wire, end, refusal, start
from tests.support.waiting import turns, until


async def turn_away(connection: Connection, receive: Any, send: Any) -> None:
    """Answers before it has read anything."""
    await start(send, (b"content-length", b"2"))
    await send({"type": "http.response.body", "body": b"no"})


async def test_trailers_do_not_become_headers() -> None:
    seen: list[Any] = []

    async def handler(connection: Connection, receive: Any, send: Any) -> None:
        await receive()
        seen.extend(wire.protocol.scope["headers"])
        await start(send)
        await end(send)

    wire = Wire(handler)
    await wire.feed(CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
    assert seen == [(b"host", b"x"), (b"transfer-encoding", b"chunked")]
    wire.close()


async def test_a_head_that_takes_too_long_is_told_so(wire: Wire) -> None:
    await wire.feed(GET[:10])
    await wire.later(9)
    assert wire.take() == b""
    await wire.feed(GET[10:20])
    await wire.later(11)  # from its first byte, however steadily it drips
    assert refusal(wire) == (408, "header_timeout")


async def test_a_connection_that_sends_nothing_is_closed_in_silence(wire: Wire) -> None:
    await wire.later(74)
    assert not wire.transport.closed
    await wire.feed(b"\r\n\r\n")
    await wire.later(76)
    assert wire.transport.closed
    assert wire.take() == b""


async def test_a_connection_that_waits_for_its_answer_is_not_idle(held: Held) -> None:
    wire = Wire(held, **LIMITS)
    await wire.feed(GET)
    await wire.later(1000)
    assert not wire.transport.closed
    held.may_end.set()
    await turns()
    await wire.later(76)
    assert wire.transport.closed
    wire.close()


async def test_silence_within_a_body_ends_the_request(wire: Wire, reader: Reader) -> None:
    await wire.feed(POST + b"abc")
    await wire.later(29)
    assert wire.take() == b""
    await wire.later(31)
    assert refusal(wire) == (408, "body_timeout")
    assert reader.deserted == 1


async def test_a_body_that_drips_for_ever_ends_too(wire: Wire, reader: Reader) -> None:
    await wire.feed(POST + b"a")
    wire.protocol._body_ns -= int(301e9)
    await wire.feed(b"b")
    await wire.later(1)
    assert refusal(wire) == (408, "body_timeout")
    assert reader.deserted == 1


async def test_while_the_application_does_not_read_the_silence_is_not_the_clients(held: Held) -> None:
    wire = Wire(never_reads, **{**LIMITS, "max_body_bytes": 1 << 20})
    await wire.feed(POST.replace(b"10", b"200000") + b"x" * 100_000)
    assert wire.transport.paused
    await wire.later(31)
    assert wire.take() == b""
    wire.protocol.connection_lost(None)
    await turns()


async def never_reads(connection: Connection, receive: Any, send: Any) -> None:
    while not connection._cycle.disconnected:
        await turns(1)


async def test_a_head_that_waits_for_the_answer_before_it_is_not_late(held: Held) -> None:
    wire = Wire(held, **LIMITS)
    await wire.feed(GET + GET[:10])
    await wire.later(100)
    held.may_end.set()
    await turns()
    wire.protocol.expire(monotonic_ns() + int(101e9))
    await wire.feed(GET[10:])
    assert wire.take().count(b"HTTP/1.1 200") == 2
    wire.close()


async def test_an_answer_that_has_begun_goes_on_while_the_body_is_silent(held: Held) -> None:
    wire = Wire(held, **LIMITS)
    await wire.feed(POST + b"abc")
    await wire.later(31)
    assert wire.seen[0][1].try_write(b"x")
    held.may_end.set()
    await turns()
    assert wire.take().endswith(b"1\r\nx\r\n0\r\n\r\n")
    await wire.later(LINGER_S + 1)
    assert wire.transport.ended
    wire.close()


@pytest.fixture
def held() -> Held:
    return Held()


async def test_a_body_that_breaks_while_it_is_read_is_answered(wire: Wire, reader: Reader) -> None:
    await wire.feed(CHUNKED + b"1\r\na\r\n")
    await wire.feed(b"nonsense\r\n")
    assert refusal(wire) == (400, "invalid_http")
    assert reader.deserted == 1


async def test_a_client_that_is_refused_is_not_told_to_continue(wire: Wire, reader: Reader) -> None:
    # The application came to read only after the refusal, and the interim answer hit a socket that had ended.
    await wire.feed(CHUNKED[:-2] + b"Expect: 100-continue\r\n\r\nnonsense\r\n")
    assert refusal(wire) == (400, "invalid_http")
    assert reader.deserted == 1


async def test_nothing_is_written_into_an_answer_that_is_under_way(held: Held) -> None:
    wire = Wire(held, **LIMITS)
    await wire.feed(GET)
    await wire.feed(b"nonsense\r\n\r\n")
    assert wire.take().count(b"HTTP/1.1") == 1
    assert wire.seen[0][1].try_write(b"x")
    held.may_end.set()
    await turns()
    assert wire.take() == b"1\r\nx\r\n0\r\n\r\n"
    assert wire.transport.ended


async def test_requests_before_a_broken_one_are_all_answered(held: Held) -> None:
    wire = Wire(held, **LIMITS)
    await wire.feed(GET * 3 + CHUNKED + b"nonsense\r\n")
    held.may_end.set()
    await turns(100)
    assert [path for path, _ in wire.seen] == ["/one"] * 3
    assert wire.take().count(b"HTTP/1.1 200") == 3
    assert wire.transport.ended


async def test_few_requests_wait_on_a_connection(held: Held) -> None:
    wire = Wire(held, **LIMITS)
    await wire.feed(GET * 5000)
    held.may_end.set()
    await turns(1000)
    assert wire.take().count(b"HTTP/1.1 200") == 1 + MAX_PIPELINED
    assert wire.transport.ended


async def test_the_request_that_is_answered_learns_of_its_clients_end_though_others_wait_behind(held: Held) -> None:
    wire = Wire(held, **LIMITS)
    await wire.feed(GET * 3)
    wire.transport.close()
    wire.protocol.connection_lost(None)
    assert wire.seen[0][1]._cycle.disconnected
    held.may_end.set()
    await turns()
    assert len(wire.seen) == 1


async def test_the_rest_of_a_refused_body_is_thrown_away_and_the_connection_kept() -> None:
    wire = Wire(turn_away, **LIMITS)
    await wire.feed(POST + b"abc")
    assert wire.take().endswith(b"\r\n\r\nno")
    await wire.feed(b"defghij")
    await wire.feed(GET)
    assert wire.take().endswith(b"\r\n\r\nno")
    assert not wire.transport.ended
    wire.close()


async def test_of_a_refused_body_only_so_much_is_thrown_away() -> None:
    wire = Wire(turn_away, **LIMITS)
    await wire.feed(CHUNKED)
    for _ in range(20):
        await wire.feed(b"64\r\n" + b"x" * 100 + b"\r\n")
    assert wire.transport.ended and not wire.transport.closed  # the client can still read
    for _ in range(1000):
        await wire.feed(b"64\r\n" + b"x" * 100 + b"\r\n")
    assert not wire.transport.closed
    await wire.later(LINGER_S + 1)
    assert wire.transport.aborted


async def test_nobody_sends_without_end_while_an_answer_is_under_way(held: Held) -> None:
    wire = Wire(held, **LIMITS)
    await wire.feed(GET + b"nonsense\r\n\r\n")
    await wire.feed(b"x" * 2000)
    assert not wire.transport.aborted
    await wire.feed(b"x")
    assert wire.transport.aborted
    held.may_end.set()
    await turns()


async def test_for_a_refused_body_only_so_long_is_waited() -> None:
    wire = Wire(turn_away, **LIMITS)
    await wire.feed(POST)
    await wire.later(LINGER_S / 2)
    assert not wire.transport.ended
    await wire.later(LINGER_S + 1)
    assert wire.transport.ended and not wire.transport.closed
    await wire.later(LINGER_S + 1)
    assert wire.transport.aborted


async def test_a_refused_client_that_stays_is_cut_off(wire: Wire) -> None:
    await wire.feed(POST + b"abc")
    await wire.later(31)
    assert wire.transport.ended
    await wire.later(LINGER_S + 1)
    assert wire.transport.aborted


async def test_an_upgrade_is_ignored_and_the_connection_closed(wire: Wire) -> None:
    await wire.feed(GET[:-2] + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n")
    assert b"connection: close" in wire.take()
    assert wire.transport.ended


async def test_an_upgrade_with_a_body_is_refused(wire: Wire) -> None:
    await wire.feed(POST[:-2] + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n0123456789")
    assert refusal(wire) == (400, "upgrade_unsupported")


async def test_an_http_1_0_client_gets_no_chunks() -> None:
    async def handler(connection: Connection, receive: Any, send: Any) -> None:
        await start(send)
        assert not connection.try_write(b"x")
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two", "more_body": True})
        await end(send)

    wire = Wire(handler)
    await wire.feed(b"GET /x HTTP/1.0\r\n\r\n")
    head, _, body = wire.take().partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert b"connection: close" in head
    assert body == b"one two"
    assert wire.transport.closed


async def test_an_http_1_0_client_gets_lengths_that_are_known() -> None:
    wire = Wire(turn_away)
    await wire.feed(b"GET /x HTTP/1.0\r\n\r\n")
    assert wire.take().endswith(b"content-length: 2\r\nconnection: close\r\n\r\nno")
    assert wire.transport.closed


@pytest.mark.parametrize("size", [4096, 65536])
async def test_the_kernel_keeps_no_more_for_a_reader_than_is_set(held: Held, size: int) -> None:
    wire = Wire(held, send_buffer_bytes=size)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: wire.protocol, sock=ours)
        assert transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * size
        transport.abort()
        await turns()


class Watched:
    def __init__(self) -> None:
        self.times: list[int] = []

    def expire(self, now_ns: int) -> None:
        self.times.append(now_ns)


async def test_a_sweeper_asks_every_connection_until_it_is_gone() -> None:
    sweeper = Sweeper(HttpSettings(header_timeout=0.04))
    one, two = Watched(), Watched()
    sweeper.add(one)
    sweeper.add(two)
    await until(lambda: len(one.times) > 2 and len(two.times) > 2)
    sweeper.discard(one)
    seen = len(one.times)
    await until(lambda: len(two.times) > seen + 2)
    assert len(one.times) == seen
    sweeper.discard(two)
    assert sweeper._timer is None
