import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import SlowReader
from server.ledger import StepMeter
from server.stages import Stage, StageClock
from server.streaming.outbox import KEEP_ALIVE, Outbox
from tests.support.meters import KeptMeters
from tests.support.waiting import turns, until


class Reader:
    """Takes bytes while it is `open`; `write` waits for it, `try_write` does not."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()

    async def write(self, data: bytes) -> None:
        await self.open.wait()
        self.got.append(data)

    def try_write(self, data: bytes) -> bool:
        if self.open.is_set():
            self.got.append(data)
        return self.open.is_set()


def outbox(limit: int = 1000) -> tuple[Outbox, StepMeter]:
    meter = StepMeter(StageClock(), KeptMeters().meters)
    return Outbox(meter, limit_bytes=limit), meter


@asynccontextmanager
async def running(
    box: Outbox, reader: Reader, *, send_timeout: float = 20, keepalive: float = 0, synchronous: bool = True
) -> AsyncIterator[asyncio.Task[None]]:
    write = reader.try_write if synchronous else None
    task = asyncio.create_task(box.run(reader.write, write, send_timeout=send_timeout, keepalive=keepalive))
    try:
        await turns()
        yield task
    finally:
        box.close()
        reader.open.set()
        async with asyncio.timeout(20):
            await asyncio.gather(task, return_exceptions=True)


async def test_what_is_put_before_a_reader_comes_waits_for_it() -> None:
    box, meter = outbox()
    reader = Reader()
    box.put(b"a")
    box.put(b"b")
    assert meter.parked
    async with running(box, reader):
        assert reader.got == [b"ab"]
        assert not meter.parked


async def test_a_reader_that_keeps_up_gets_each_put_at_once() -> None:
    box, meter = outbox()
    reader = Reader()
    async with running(box, reader):
        for data in (b"a", b"b"):
            box.put(data)
            assert reader.got[-1] == data
        assert not meter.parked


async def test_a_stream_parks_at_a_refusal_and_unparks_when_all_is_out() -> None:
    box, meter = outbox()
    reader = Reader()
    async with running(box, reader):
        box.put(b"a")
        reader.open.clear()
        box.put(b"b")
        await turns()
        assert meter.parked
        box.put(b"c")  # while `b` is on its way
        reader.open.set()
        box.put(b"d")  # must not overtake
        assert reader.got == [b"a"]
        await until(lambda: not meter.parked)
        assert b"".join(reader.got) == b"abcd"
        box.put(b"e")
        assert reader.got[-1] == b"e"


async def test_the_time_parked_is_send() -> None:
    box, meter = outbox()
    clock = meter._clock
    reader = Reader()
    async with running(box, reader):
        reader.open.clear()
        before = clock.cursor
        box.put(b"a")
        await asyncio.sleep(0.02)
        reader.open.set()
        await until(lambda: not meter.parked)
        assert clock.cursor - before >= 15e6
        assert clock.ns[Stage.SEND] == sum(clock.ns) == clock.cursor - clock.started


async def test_a_reader_further_behind_than_the_limit_is_slow() -> None:
    box, _ = outbox(limit=10)
    reader = Reader()
    async with running(box, reader):
        reader.open.clear()
        for _ in range(10):
            box.put(b"x")
        with pytest.raises(SlowReader):
            box.put(b"x")


async def test_what_is_being_written_counts_as_behind() -> None:
    box, meter = outbox(limit=10)
    reader = Reader()
    async with running(box, reader):
        reader.open.clear()
        box.put(b"x" * 10)
        await turns()
        with pytest.raises(SlowReader):
            box.put(b"x")
        reader.open.set()
        await until(lambda: not meter.parked)
        box.put(b"x" * 10)


async def test_a_write_that_waits_too_long_is_a_slow_reader() -> None:
    box, _ = outbox()
    reader = Reader()
    reader.open.clear()
    async with running(box, reader, send_timeout=0.02) as task:
        box.put(b"a")
        with pytest.raises(SlowReader):
            async with asyncio.timeout(20):
                await task


async def test_run_returns_once_closed_and_empty() -> None:
    box, _ = outbox()
    reader = Reader()
    async with running(box, reader) as task:
        box.put(b"a")
        box.close()
        async with asyncio.timeout(20):
            await task
        assert reader.got == [b"a"]


async def test_closed_while_parked_everything_still_goes_out() -> None:
    box, _ = outbox()
    reader = Reader()
    async with running(box, reader) as task:
        reader.open.clear()
        box.put(b"a")
        await turns()
        box.put(b"b")
        box.close()
        await turns()
        assert not task.done()
        reader.open.set()
        async with asyncio.timeout(20):
            await task
        assert b"".join(reader.got) == b"ab"


async def test_without_a_synchronous_way_out_every_put_is_written_by_the_task() -> None:
    box, meter = outbox()
    reader = Reader()
    async with running(box, reader, synchronous=False):
        for data in (b"a", b"b", b"c"):
            box.put(data)
            await until(lambda: not meter.parked)
        assert reader.got == [b"a", b"b", b"c"]


async def test_silence_is_broken_by_empty_lines() -> None:
    box, _ = outbox()
    reader = Reader()
    async with running(box, reader, keepalive=0.02):
        await until(lambda: len(reader.got) >= 3)
        assert set(reader.got) == {KEEP_ALIVE}


async def test_a_stream_that_flows_has_no_empty_lines() -> None:
    box, _ = outbox()
    reader = Reader()
    async with running(box, reader, keepalive=30):
        box._last_write -= 10**9 * 29  # all but due
        box.put(b"a")
        await turns()
        assert reader.got == [b"a"]
    assert reader.got == [b"a"]


async def test_a_stalled_reader_is_sent_no_empty_lines_on_top() -> None:
    box, _ = outbox()
    reader = Reader()
    async with running(box, reader, keepalive=0.005):
        reader.open.clear()
        box.put(b"a")
        await asyncio.sleep(0.05)
        assert box._pending == []
        reader.open.set()
        await until(lambda: b"a" in reader.got)


@given(st.lists(st.sampled_from(["put", "stop", "go", "turn"]), max_size=40))
async def test_however_the_reader_falters_every_byte_arrives_in_order(steps: list[str]) -> None:
    box, _ = outbox(limit=10**6)
    reader = Reader()
    sent: list[bytes] = []
    async with running(box, reader):
        for step in steps:
            match step:
                case "put":
                    sent.append(b"%d," % len(sent))
                    box.put(sent[-1])
                case "stop":
                    reader.open.clear()
                case "go":
                    reader.open.set()
                case "turn":
                    await asyncio.sleep(0)
    assert b"".join(reader.got) == b"".join(sent)
