"""A reader that is slow costs memory up to a bound, time up to a bound, and its neighbours nothing."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from prometheus_client import REGISTRY

from server.engine.scripted_engine import ScriptedEngine
from server.errors import EngineDied
from server.pipeline import Pipeline
from tests.server.conftest import MakeScripted
from tests.support import responses, sse
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.live import Client, Live, listening
from tests.support.site import CHAT, chat
from tests.support.waiting import DEADLINE_S, until

SMALL = 4096  # bytes the kernel keeps on either side: with more the server must wait for its client
BUFFER = 20_000
SMALL_BUFFER = f"http.stream_buffer_bytes={BUFFER}"
LINE = "x" * 400
WORD = " word"
STUCK = 300  # lines that fit no small buffers, and less than a stream's own
SHORT, LONG = 600, 100_000  # tokens


def cuts(reason: str) -> float:
    return REGISTRY.get_sample_value("streamgauge_stream_cuts_total", {"reason": reason}) or 0


def merged_deltas() -> float:
    return REGISTRY.get_sample_value("streamgauge_merged_deltas_total") or 0


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


async def fill(live: Live[FakeEngine], sequence: FakeSequence, lines: int = 0) -> list[str]:
    """Say more and more until the reader is known to be slow, and at least so many lines; returns what was said.

    A stream may park for a moment only, while what it has said still fits what lies between it and the client.
    """
    said: list[str] = []
    async with asyncio.timeout(20):
        while not parked(live.services.pipeline) or len(said) < lines:
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


async def fall_behind(live: Live[FakeEngine], sequence: FakeSequence) -> list[str]:
    """Say more until the stream's buffer is full; returns what was said."""
    said = await fill(live, sequence)
    (stream,) = live.services.pipeline._tasks.values()
    while not stream.outbox.full:
        said.append(f"{len(said)}{LINE}")
        sequence.say(said[-1])
    return said


async def test_what_a_reader_is_too_far_behind_for_reaches_it_in_one_event(engine: FakeEngine) -> None:
    async with listening(engine, SMALL_BUFFER, send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        said = await fall_behind(live, sequence)
        for _ in range(1000):
            sequence.say(WORD)
        (stream,) = live.services.pipeline._tasks.values()
        assert stream.outbox._pending_bytes < BUFFER + 2 * len(LINE)
        reading = asyncio.create_task(client.body())
        await until(lambda: not parked(live.services.pipeline))
        sequence.say("last")
        sequence.end()
        found = sse.events(await reading)
        assert sse.text_of(found) == "".join(said) + WORD * 1000 + "last"
        assert len(found) == len(said) + 4  # backlog, last, finish, [DONE]
        assert sse.finish_reasons(found) == {0: "stop"}
        (record,) = await live.records()
        assert record["outcome"] == "ok"
        assert record["events"] == len(said) + 3


async def test_an_answer_that_ends_with_its_reader_far_behind_arrives_whole(engine: FakeEngine) -> None:
    async with listening(engine, SMALL_BUFFER, send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        said = await fall_behind(live, sequence)
        for _ in range(1000):
            sequence.say(WORD)
        sequence.end()
        found = sse.events(await client.body())
        assert sse.text_of(found) == "".join(said) + WORD * 1000
        assert found[-1] == sse.DONE
        assert (await live.records())[0]["outcome"] == "ok"


async def test_a_reader_too_far_behind_even_for_that_loses_its_stream(engine: FakeEngine) -> None:
    before = cuts("backlog"), cuts("send_timeout")
    async with listening(engine, SMALL_BUFFER, send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        said = await fall_behind(live, sequence)
        for _ in range(BUFFER // len(LINE) + 1):
            sequence.say(LINE)
        await until(lambda: sequence.aborted)
        found = sse.events(await client.body())
        assert sse.text_of(found[:-2]) == "".join(said)
        assert found[-2]["error"]["code"] == "slow_reader"
        assert found[-1] == sse.DONE
        assert sse.finish_reasons(found[:-2]) == {}
        assert (await live.records())[0]["outcome"] == "slow_reader"
    assert (cuts("backlog"), cuts("send_timeout")) == (before[0] + 1, before[1])


async def test_a_reader_that_loses_its_stream_and_never_reads_on_is_counted_once(engine: FakeEngine) -> None:
    before = cuts("backlog"), cuts("send_timeout")
    async with (
        listening(engine, SMALL_BUFFER, "http.send_timeout=0.5", send_buffer=SMALL) as live,
        live.client(SMALL) as client,
    ):
        sequence = await opened(live, client)
        await fall_behind(live, sequence)
        for _ in range(BUFFER // len(LINE) + 1):
            sequence.say(LINE)
        await until(lambda: live.idle)
        assert sse.DONE.encode() not in await client.closed()
        assert (await live.records())[0]["outcome"] == "slow_reader"
    assert (cuts("backlog"), cuts("send_timeout")) == (before[0] + 1, before[1])


async def test_a_client_that_goes_away_far_behind_leaves_nothing(engine: FakeEngine) -> None:
    async with listening(engine, SMALL_BUFFER, send_buffer=SMALL) as live:
        async with live.client(SMALL) as client:
            sequence = await opened(live, client)
            await fall_behind(live, sequence)
            sequence.say(WORD)
        await until(lambda: sequence.aborted)
        assert (await live.records())[0]["outcome"] == "client_gone"


async def test_a_reader_that_stalls_for_too_long_loses_its_connection(engine: FakeEngine) -> None:
    before = cuts("send_timeout")
    async with listening(engine, "http.send_timeout=0.2", send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        await fill(live, sequence, STUCK)
        await until(lambda: sequence.aborted)
        await until(lambda: live.idle)
        assert sse.DONE.encode() not in await client.closed()
        assert (await live.records())[0]["outcome"] == "slow_reader"
    assert cuts("send_timeout") == before + 1


async def test_a_complete_answer_that_is_not_read_is_cut_and_no_success(engine: FakeEngine) -> None:
    before = cuts("send_timeout")
    async with listening(engine, "http.send_timeout=0.2", send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        await fill(live, sequence, STUCK)
        sequence.end()
        await until(lambda: live.idle)
        assert sse.DONE.encode() not in await client.closed()
        (record,) = await live.records()
        assert (record["outcome"], record["finish_reasons"]) == ("slow_reader", ["stop"])
    assert cuts("send_timeout") == before + 1


async def test_a_slow_reader_of_a_response_in_the_background_is_cut_and_the_response_goes_on(
    engine: FakeEngine,
) -> None:
    before = cuts("send_timeout")
    settings = "http.send_timeout=0.2", "responses.event_log_bytes=8000000"
    async with listening(engine, *settings, send_buffer=SMALL) as live, live.client(SMALL) as client:
        client.post(responses.RESPONSES, responses.ask(background=True, stream=True))
        sequence = await engine.sequence()
        for _ in range(1000):
            sequence.say(LINE)
        await until(lambda: cuts("send_timeout") == before + 1)
        await client.closed()
        assert not sequence.aborted
        sequence.end()
        stored = live.services.responses
        await until(lambda: not stored._running)
        (response,) = stored._ended.values()
        exchange = await live.get(f"{responses.RESPONSES}/{response.id}?stream=true")
        assert exchange.status == 200, exchange.body
        found = responses.events(exchange.body)
        assert responses.final_of(found)["status"] == "completed"
        assert responses.text_of(found) == LINE * 1000


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


@pytest.mark.parametrize("merges", [False, True])
async def test_an_error_reaches_a_slow_reader_behind_what_it_has_not_read(engine: FakeEngine, merges: bool) -> None:
    async with listening(engine, SMALL_BUFFER, send_buffer=SMALL) as live, live.client(SMALL) as client:
        sequence = await opened(live, client)
        said = await (fall_behind if merges else fill)(live, sequence)
        said.append("the last")
        sequence.say(said[-1])
        sequence.push(error=EngineDied())
        found = sse.events(await client.body())
        assert sse.text_of(found[:-2]) == "".join(said)
        assert found[-2]["error"]["code"] == "engine_dead"
        assert found[-1] == sse.DONE


async def test_fifty_slow_readers_are_cut_and_fifty_quick_ones_notice_nothing(scripted: MakeScripted) -> None:
    engine = scripted(step_ms=2, max_model_len=2 * LONG)
    before, merged = cuts("send_timeout"), merged_deltas()
    settings = "http.send_timeout=1", SMALL_BUFFER
    async with listening(engine, *settings, send_buffer=SMALL) as live:
        alone = await hurry(live)
        slow = [asyncio.create_task(trickle(live)) for _ in range(50)]
        quick = [asyncio.create_task(hurry(live)) for _ in range(50)]
        await until(lambda: len(live.services.pipeline._tasks) == 100)
        largest = await largest_buffer(live)
        assert [await reader for reader in quick] == [alone] * 50
        assert engine.in_flight == 0
        assert BUFFER <= largest < BUFFER + 1000
        outcomes = Counter(record["outcome"] for record in await live.records())
        assert outcomes == {"ok": 51, "slow_reader": 50}
        for reader in slow:  # they would be busy for long with what the kernel still has for them
            reader.cancel()
        assert all(end is None or isinstance(end, asyncio.CancelledError) for end in await ended(slow))
    assert cuts("send_timeout") == before + 50
    assert merged_deltas() > merged


async def ended(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException | None]:
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def sip(client: Client) -> bool:
    """Read 1 KB and take a second for it; False at the end."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            data = await client._reader.read(1000)
        except ConnectionResetError:
            return False
        await asyncio.sleep(1)
        return bool(data)


async def trickle(live: Live[ScriptedEngine]) -> None:
    """Read a stream at 1 KB/s."""
    async with live.client(SMALL) as client:
        client.post(CHAT, chat(stream=True, max_tokens=LONG))
        assert await client.head() == 200
        while await sip(client):
            pass


async def hurry(live: Live[ScriptedEngine]) -> str:
    async with live.client() as client:
        client.post(CHAT, chat(stream=True, max_tokens=SHORT))
        assert await client.head() == 200
        found = await client.events()
    assert sse.finish_reasons(found) == {0: "length"}
    assert found[-1] == sse.DONE
    return sse.text_of(found)


async def largest_buffer(live: Live[ScriptedEngine]) -> int:
    """The most that any stream's outbox and backlog held, looked at until every stream has ended."""
    largest = 0
    while tasks := live.services.pipeline._tasks:
        for stream in tasks.values():
            largest = max(largest, stream.outbox._pending_bytes, stream._backlog.size)
        await asyncio.sleep(0.01)
    return largest
