"""A client that goes away costs the engine no further token, at whatever moment it goes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from server.engine.scripted_engine import ScriptedEngine
from tests.server.conftest import MakeScripted
from tests.support.engines import FakeEngine
from tests.support.live import Live, listening
from tests.support.site import CHAT, COMPLETIONS, chat, completion
from tests.support.waiting import turns, until

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
WITHIN_S = 5  # a second is promised


@pytest.fixture
async def live(engine: FakeEngine) -> AsyncIterator[Live[FakeEngine]]:
    async with listening(engine) as server:
        yield server


async def gone(live: Live[FakeEngine], sequences: int = 1) -> None:
    """Everything has been let go of, and the record says why."""
    await until(lambda: live.engine.in_flight == 0, WITHIN_S)
    await until(lambda: live.idle, WITHIN_S)
    assert len(live.engine.sequences) == sequences
    (record,) = await live.records()
    assert record["outcome"] == "client_gone"


@STREAMED
async def test_a_client_gone_before_its_first_token(live: Live[FakeEngine], stream: bool) -> None:
    async with live.client() as client:
        client.post(CHAT, chat(stream=stream, n=3))
        await live.engine.sequence(2)
    await gone(live, sequences=3)


@STREAMED
async def test_a_client_gone_between_two_tokens(live: Live[FakeEngine], stream: bool) -> None:
    async with live.client() as client:
        client.post(COMPLETIONS, completion(stream=stream))
        (await live.engine.sequence()).say("one")
        if stream:
            await client.head()
            await client.chunk()
    await gone(live)


async def test_a_client_gone_while_only_keep_alives_were_sent(engine: FakeEngine) -> None:
    async with listening(engine, "http.keepalive=0.05") as live:
        async with live.client() as client:
            client.post(CHAT, chat(stream=True))
            assert await client.head() == 200
            assert await client.chunk() == b"\n"
        await gone(live)


async def test_a_client_gone_while_it_did_not_read(engine: FakeEngine) -> None:
    async with listening(engine, send_buffer=4096) as live:
        async with live.client(receive_buffer=4096) as client:
            client.post(CHAT, chat(stream=True))
            sequence = await engine.sequence()
            sequence.say("first")
            await client.head()
            (stream,) = live.services.pipeline._tasks.values()
            while not stream.meter.parked:
                sequence.say("x" * 400)
                await turns(1)
        await gone(live)


async def test_a_client_gone_in_the_middle_of_its_body(live: Live[FakeEngine]) -> None:
    async with live.client() as client:
        client.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await until(lambda: live.services.metrics.in_flight)
    await gone(live, sequences=0)


@STREAMED
async def test_what_the_engine_still_sends_to_one_gone_goes_nowhere(live: Live[FakeEngine], stream: bool) -> None:
    async with live.client() as client:
        client.post(CHAT, chat(stream=stream))
        sequence = await live.engine.sequence()
    await until(lambda: sequence.aborted, WITHIN_S)
    sequence.say("too late")
    sequence.end()
    await turns()
    await gone(live)
    assert (await live.records())[0]["output_tokens"] == 0


@STREAMED
async def test_a_client_gone_while_it_waits_for_the_engine(scripted: MakeScripted, stream: bool) -> None:
    engine = scripted(max_num_seqs=1, step_ms=5, max_model_len=8192)
    async with listening(engine) as live, live.client() as running:
        running.post(CHAT, chat(stream=True, max_tokens=2000))
        await running.head()
        async with live.client() as queued:
            queued.post(CHAT, chat(stream=stream))
            await until(lambda: len(live.services.admission.queue) == 1)
        await until(lambda: not live.services.admission.queue, WITHIN_S)
        assert engine.in_flight == 1
        await until(lambda: live.services.metrics.in_flight == 1, WITHIN_S)
        assert live.services.admission.slots.in_use == 1
        assert await running.chunk()


async def test_many_clients_gone_at_once(scripted: MakeScripted) -> None:
    engine: ScriptedEngine = scripted(step_ms=2, max_model_len=8192)
    async with listening(engine) as live:
        async with AsyncExitStack() as clients:
            for number in range(20):
                client = await clients.enter_async_context(live.client())
                client.post(CHAT, chat(stream=bool(number % 2), max_tokens=4000))
            await until(lambda: engine.in_flight == 20)
        await until(lambda: engine.in_flight == 0, WITHIN_S)
        await until(lambda: live.idle, WITHIN_S)
        assert {record["outcome"] for record in await live.records()} == {"client_gone"}
