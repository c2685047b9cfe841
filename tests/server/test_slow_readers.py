"""A reader that is slow costs memory up to a bound, time up to a bound, and its neighbours nothing."""

import asyncio

from server.errors import EngineDied
from server.pipeline import Pipeline
from tests.support import sse
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.live import Client, Live, listening
from tests.support.site import CHAT, chat
from tests.support.waiting import until

SMALL = 4096  # bytes the kernel keeps on either side: with more the server must wait for its client
LINE = "x" * 400


def parked(pipeline: Pipeline) -> int:
    return sum(stream.meter.parked for stream in pipeline._tasks.values())


async def opened(live: Live[FakeEngine], client: Client, index: int = 0) -> FakeSequence:
    """A stream whose first event has arrived."""
    client.post(CHAT, chat(stream=True, max_tokens=400))
    sequence = await live.engine.sequence(index)
    sequence.say("first")
    assert await client.head() == 200
    await client.chunk()
    return sequence


async def fill(live: Live[FakeEngine], sequence: FakeSequence) -> list[str]:
    """Say more and more until the reader is known to be slow; returns what was said."""
    said: list[str] = []
    async with asyncio.timeout(20):
        while not parked(live.services.pipeline):
            said.append(f"{len(said)}{LINE}")
            sequence.say(said[-1])
            await asyncio.sleep(0)
    return said


async def test_a_slow_reader_that_resumes_gets_every_byte_in_order(engine: FakeEngine) -> None:
    async with listening(engine, send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        said = await fill(live, sequence)
        for _ in range(20):  # into the buffer of the parked stream
            said.append(f"{len(said)}{LINE}")
            sequence.say(said[-1])
        reading = asyncio.create_task(client.body())
        await until(lambda: not parked(live.services.pipeline))
        for _ in range(20):  # straight to the socket again
            said.append(f"{len(said)}{LINE}")
            sequence.say(said[-1])
        sequence.end()
        found = sse.events(await reading)
        assert sse.text_of(found) == "".join(said)
        assert sse.finish_reasons(found) == {0: "stop"}
        assert found[-1] == sse.DONE
        (record,) = await live.records()
        assert record["outcome"] == "ok"
        assert record["stages_ms"]["send"] > 0


async def test_a_reader_further_behind_than_the_buffer_loses_its_stream(engine: FakeEngine) -> None:
    async with (
        listening(engine, "http.stream_buffer_bytes=20000", send_buffer=SMALL) as live,
        live.client(SMALL) as client,
    ):
        sequence = await opened(live, client)
        await fill(live, sequence)
        for _ in range(100):
            sequence.say(LINE)
        (stream,) = live.services.pipeline._tasks.values()
        assert stream.outbox._pending_bytes < 40_000
        await until(lambda: sequence.aborted)
        reading = asyncio.create_task(client.body())
        found = sse.events(await reading)
        assert found[-2]["error"]["code"] == "slow_reader"
        assert found[-1] == sse.DONE
        assert sse.finish_reasons(found) == {}
        assert (await live.records())[0]["outcome"] == "slow_reader"


async def test_a_reader_that_stalls_for_too_long_loses_its_connection(engine: FakeEngine) -> None:
    async with listening(engine, "http.send_timeout=0.2", send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        await fill(live, sequence)
        await until(lambda: sequence.aborted)
        await until(lambda: live.idle)
        assert sse.DONE.encode() not in await client.closed()
        assert (await live.records())[0]["outcome"] == "slow_reader"


async def test_the_neighbours_of_a_slow_reader_go_on(engine: FakeEngine) -> None:
    async with listening(engine, send_buffer=SMALL) as live, live.client(SMALL) as slow, live.client() as quick:
        stuck = await opened(live, slow)
        await fill(live, stuck)
        flowing = await opened(live, quick, index=1)
        for number in range(100):
            flowing.say(f" {number}")
            stuck.say(LINE)
            assert sse.text_of(sse.events(await quick.chunk())) == f" {number}"
        assert parked(live.services.pipeline) == 1
        flowing.end()
        assert (await quick.events())[-1] == sse.DONE


async def test_an_error_reaches_a_slow_reader_behind_what_it_has_not_read(engine: FakeEngine) -> None:
    async with listening(engine, send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        said = await fill(live, sequence)
        sequence.push(error=EngineDied())
        found = sse.events(await client.body())
        assert sse.text_of(found[:-2]) == "".join(said)
        assert found[-2]["error"]["code"] == "engine_dead"
        assert found[-1] == sse.DONE
