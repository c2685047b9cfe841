import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.overload_arms import Station
from bench.overload_plan import Lengths, Workload
from bench.overload_refusals import BURST, HOLDERS, KEPT, STEADY, Refusals, Window, events_in, holding, run_refusals
from bench.sample import RequestSample, StreamEvent
from tests.bench.bytes import SSE_HEAD, chat_event
from tests.support.waiting import until

REFUSAL = b'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 28\r\n\r\n{"error":{"code":"no_room"}}'
WORKLOAD = Workload(Lengths(16, 64, 128, 0.5), Lengths(2, 4, 8, 0.5), seed=1)
MS = 1_000_000


class FullServer:
    """Gives each of its places to a stream that never ends, and refuses everybody else."""

    def __init__(self) -> None:
        self.streams = 0
        self.most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(maxsplit=1)[0]))
                if self.streams < HOLDERS:
                    await self._stream(writer)
                writer.write(REFUSAL)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        self.streams += 1
        self.most = max(self.most, self.streams)
        event = chat_event("a")
        writer.write(SSE_HEAD)
        try:
            while not writer.is_closing():
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            self.streams -= 1


@asynccontextmanager
async def full_server() -> AsyncIterator[tuple[FullServer, Station]]:
    """At the end every place has to be free again."""
    full = FullServer()
    server = await asyncio.start_server(full.serve, "127.0.0.1", 0)
    async with server:
        yield full, Station(server.sockets[0].getsockname()[1], os.getpid(), "m", deadline_s=60.0)
        await until(lambda: full.streams == 0)


async def test_everybody_is_refused_while_the_places_are_held() -> None:
    async with full_server() as (full, station):
        found = await run_refusals(station, WORKLOAD, burst=20, rate=100.0, seconds=0.4)
    assert [each.kind for each in found] == [BURST, STEADY, KEPT]
    assert [(each.sent, each.reasons) for each in found] == [
        (20, {"503 no_room": 20}),
        (40, {"503 no_room": 40}),
        (40, {"503 no_room": 40}),
    ]
    assert all(min(each.latencies_ns) > 0 for each in found)
    assert full.most == HOLDERS


async def test_the_places_are_held_until_the_end() -> None:
    async with full_server() as (full, station), holding(station) as held:
        assert len(held) == HOLDERS == full.streams


def test_events_are_counted_where_they_came() -> None:
    samples = [
        RequestSample(events=[StreamEvent(stamp, 0, True, None) for stamp in range(start, 10)]) for start in (0, 5)
    ]
    assert events_in(samples, Window(4, 7, cpu_ns=0)) == 3 + 2


def test_the_cost_of_a_refusal_is_a_mean_and_its_latency_a_percentile() -> None:
    found = Refusals(STEADY, 3, [MS, 3 * MS, 2 * MS], {}, cpu_ns=600_000.0)
    assert found.cpu_us == pytest.approx(200.0)
    assert (found.latency_ms(50), found.latency_ms(100)) == (2.0, 3.0)
    assert Refusals(STEADY, 3, [], {}, 1.0).cpu_us is None
