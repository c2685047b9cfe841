import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from server.ledger import StepMeter
from server.stages import Stage, StageClock
from server.streaming.outbox import KEEP_ALIVE, WRITE_BYTES, Outbox
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


def outbox(limit: int = 1000, on_room: Callable[[], None] | None = None) -> tuple[Outbox, StepMeter]:
    meter = StepMeter(StageClock(), KeptMeters().meters)
    return Outbox(meter, limit_bytes=limit, on_room=on_room), meter


def parked_streams() -> float | None:
    return REGISTRY.get_sample_value("streamgauge_parked_streams")


@asynccontextmanager
async def running(
    box: Outbox, reader: Reader, *, keepalive: float = 0, synchronous: bool = True
) -> AsyncIterator[asyncio.Task[None]]:
    write = reader.try_write if synchronous else None
    task = asyncio.create_task(box.run(reader.write, write, keepalive=keepalive))
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


async def test_an_outbox_is_full_at_its_bound_until_half_of_that_is_free_again() -> None:
    rooms: list[int] = []
    box, _ = outbox(limit=3 * WRITE_BYTES, on_room=lambda: rooms.append(box._pending_bytes))
    reader = Reader()
    async with running(box, reader):
        reader.open.clear()
        for _ in range(2):
            box.put(b"x" * WRITE_BYTES)
            assert not box.full
        box.put(b"x" * WRITE_BYTES)
        await turns()
        assert box.full  # what is being written counts
        assert rooms == []
        reader.open.set()
        await until(lambda: not box.full)
        assert rooms == [WRITE_BYTES]


async def test_what_is_put_when_there_is_room_again_goes_out_next_and_may_fill_it_anew() -> None:
    backlog = [b"b" * 20, b"c" * 10]
    box, meter = outbox(limit=20, on_room=lambda: box.put(backlog.pop(0)))
    reader = Reader()
    async with running(box, reader):
        reader.open.clear()
        box.put(b"a" * 20)
        reader.open.set()
        await until(lambda: not meter.parked)
        assert reader.got == [b"a" * 20, b"b" * 20, b"c" * 10]
        assert not box.full


async def test_an_end_is_taken_past_the_bound() -> None:
    box, _ = outbox(limit=10)
    reader = Reader()
    async with running(box, reader) as task:
        reader.open.clear()
        box.put(b"a" * 10)
        box.put(b"the end")
        box.close()
        reader.open.set()
        async with asyncio.timeout(20):
            await task
        assert b"".join(reader.got) == b"a" * 10 + b"the end"


async def test_one_write_takes_whole_puts_and_not_all_there_is() -> None:
    box, meter = outbox(limit=1 << 20)
    reader = Reader()
    puts = [b"%d" % (k % 10) * 20_000 for k in range(20)]
    for put in puts:
        box.put(put)
    async with running(box, reader):
        await until(lambda: not meter.parked)
    assert b"".join(reader.got) == b"".join(puts)
    assert all(len(write) % 20_000 == 0 and len(write) < WRITE_BYTES + 20_000 for write in reader.got)
    assert len(reader.got) == 5


async def test_streams_are_counted_while_they_wait_for_their_reader() -> None:
    box, meter = outbox()
    reader = Reader()
    before = parked_streams() or 0
    async with running(box, reader):
        assert parked_streams() == before
        reader.open.clear()
        box.put(b"a")
        await turns()
        assert parked_streams() == before + 1
        reader.open.set()
        await until(lambda: not meter.parked)
        assert parked_streams() == before
        reader.open.clear()
        box.put(b"a")
    assert parked_streams() == before


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
        assert not box._pending
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
