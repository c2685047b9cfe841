import asyncio

import pytest

from tests.support.engines import FakeEngine
from tests.support.site import CHAT, Served, chat, serving
from tests.support.sse import DONE, text_of
from tests.support.waiting import turns, until

STREAMED = pytest.mark.parametrize("stream", [True, False])


async def test_a_permit_is_held_exactly_as_long_as_the_stream(site: Served[FakeEngine]) -> None:
    slots = site.services.admission.slots
    exchange = site.open(CHAT, chat(stream=True, n=2))
    await site.engine.sequence(1)
    assert slots.in_use == 2
    site.engine.sequences[0].end()
    await turns()
    assert slots.in_use == 1
    site.engine.sequences[1].end()
    await until(lambda: slots.in_use == 0)
    await exchange


@STREAMED
async def test_every_sequence_is_let_go_of_at_the_end(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(CHAT, chat(stream=stream, n=3))
    await site.engine.sequence(2)
    for sequence in site.engine.sequences:
        sequence.end()
    await exchange
    await until(lambda: site.idle)
    assert all(sequence.aborted for sequence in site.engine.sequences)


async def test_what_the_engine_says_after_the_end_is_ignored(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True, n=2))
    await site.engine.sequence(1)
    first, second = site.engine.sequences
    first.say("a")
    first.end()
    first.say("ghost")
    first.end()
    second.say("b")
    second.end()
    second.say("ghost")
    await exchange
    assert [text_of(exchange.events, index) for index in (0, 1)] == ["a", "b"]
    assert exchange.body.count(DONE.encode()) == 1


@STREAMED
async def test_a_server_that_ends_tells_its_open_requests(engine: FakeEngine, stream: bool) -> None:
    async with serving(engine) as site:
        exchange = site.open(CHAT, chat(stream=stream))
        sequence = await engine.sequence()
        sequence.say("so far")
        if stream:
            await until(lambda: exchange.writes)
    await exchange
    if stream:
        assert exchange.events[-2]["error"]["code"] == "server_shutting_down"
        assert exchange.events[-1] == DONE
    else:
        assert (exchange.status, exchange.error["code"]) == (503, "server_shutting_down")
    assert engine.closed
    assert sequence.aborted


@STREAMED
async def test_a_call_that_is_cancelled_lets_go_of_the_engine(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(CHAT, chat(stream=stream))
    sequence = await site.engine.sequence()
    sequence.say("x")
    await turns()
    exchange._task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange
    await until(lambda: sequence.aborted)
    await until(lambda: site.idle)


@STREAMED
async def test_a_client_that_goes_away_at_the_asgi_boundary_is_noticed(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(CHAT, chat(stream=stream))
    sequence = await site.engine.sequence()
    exchange.disconnect()
    await exchange
    await until(lambda: sequence.aborted)
    assert (await site.records())[0]["outcome"] == "client_gone"


async def test_many_streams_run_beside_each_other_and_do_not_mix(site: Served[FakeEngine]) -> None:
    exchanges = [site.open(CHAT, chat(stream=True)) for _ in range(40)]
    await site.engine.sequence(39)
    for step in range(5):
        for number, sequence in enumerate(site.engine.sequences):
            sequence.say(f" {number}.{step}")
        await turns(3)
    for sequence in site.engine.sequences:
        sequence.end()
    texts = [text_of((await exchange).events) for exchange in exchanges]
    assert sorted(texts) == sorted("".join(f" {number}.{step}" for step in range(5)) for number in range(40))
