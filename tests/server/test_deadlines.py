"""A request has a time in all, the engine a time between two tokens: what ends at either is an error that says so."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.server.admission.asking import ask
from tests.server.admission.tickets import Owner, Payer
from tests.support import messages, responses
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.sse import DONE, text_of
from tests.support.waiting import turns, until

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
SOON = {"X-Request-Timeout-Ms": "60"}
PATHS = {
    CHAT: chat(),
    COMPLETIONS: completion(),
    messages.MESSAGES: messages.ask(),
    responses.RESPONSES: responses.ask(),
}


def failure(exchange: Exchange) -> tuple[int, str]:
    """Of an OpenAI stream after its first event, or of a status."""
    if exchange.status == 200:
        assert exchange.events[-1] == DONE
        return 200, exchange.events[-2]["error"]["code"]
    return exchange.status, exchange.error["code"]


async def clean(site: Served[FakeEngine], aborted: Sequence[int] = (0,)) -> None:
    """Nothing of it is left, and the engine computes none of it any more."""
    await until(lambda: site.idle)
    assert [number for number, sequence in enumerate(site.engine.sequences) if sequence.aborted] == list(aborted)
    assert not site.services.pipeline._tasks


@pytest.mark.parametrize("value", ["", "0", "-5", "1.5", "1e3", "ten", " ", "60ms", "1" * 12, "+5", "٣"])
async def test_a_time_that_is_none_is_refused(site: Served[FakeEngine], value: str) -> None:
    exchange = await ask(site, headers={"X-Request-Timeout-Ms": value})
    assert (exchange.status, exchange.error["param"]) == (400, "X-Request-Timeout-Ms")
    assert site.engine.sequences == []


@pytest.mark.parametrize("path", PATHS)
async def test_each_protocol_refuses_such_a_time_in_its_own_envelope(site: Served[FakeEngine], path: str) -> None:
    exchange = await ask(site, PATHS[path], path=path, headers={"X-Request-Timeout-Ms": "soon"})
    assert exchange.status == 400
    if path == messages.MESSAGES:
        assert messages.error_of(exchange)["type"] == "invalid_request_error"
    else:
        assert exchange.error["type"] == "invalid_request_error"


@STREAMED
async def test_a_time_that_ends_in_the_queue_is_a_504_and_the_engine_never_hears_of_it(
    engine: FakeEngine, stream: bool
) -> None:
    async with serving(engine, "admission.max_batch_size=1") as site:
        running = ask(site)
        await engine.sequence()
        late = await ask(site, chat(stream=stream), headers=SOON)
        assert failure(late) == (504, "request_timeout")
        assert (len(site.services.admission.queue), len(engine.sequences)) == (0, 1)
        engine.sequences[0].end()
        assert (await running).status == 200


@pytest.mark.parametrize("path", PATHS)
@STREAMED
async def test_a_time_that_ends_before_the_first_byte_is_a_504(
    site: Served[FakeEngine], path: str, stream: bool
) -> None:
    exchange = await ask(site, {**PATHS[path], "stream": stream}, path=path, headers=SOON)
    assert exchange.status == 504
    if path == messages.MESSAGES:
        assert messages.error_of(exchange)["type"] == "timeout_error"
    else:
        assert exchange.error["code"] == "request_timeout"
    await clean(site)


async def stopped_after_a_word(site: Served[FakeEngine], path: str) -> bytes:
    """The whole answer to a streamed request whose time ended after its first word."""
    exchange = ask(site, {**PATHS[path], "stream": True}, path=path, headers={"X-Request-Timeout-Ms": "400"})
    sequence = await site.engine.sequence()
    sequence.say("so far")
    assert (await exchange).status == 200
    await clean(site)
    return exchange.body


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_time_that_ends_after_the_first_byte_is_an_event_and_the_streams_end(
    site: Served[FakeEngine], path: str
) -> None:
    body = await stopped_after_a_word(site, path)
    assert body.endswith(b"data: [DONE]\n\n")
    assert body.count(b'"request_timeout"') == 1
    assert b"so far" in body


async def test_in_messages_it_is_their_error_event(site: Served[FakeEngine]) -> None:
    last = messages.events(await stopped_after_a_word(site, messages.MESSAGES))[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "timeout_error")


async def test_in_responses_it_is_a_response_that_failed(site: Served[FakeEngine]) -> None:
    found = responses.events(await stopped_after_a_word(site, responses.RESPONSES))
    assert found[-1]["type"] == "response.failed"
    assert responses.final_of(found)["error"]["code"] == "request_timeout"


@STREAMED
async def test_a_key_may_have_a_time_of_its_own(site: Served[FakeEngine], stream: bool) -> None:
    exchange = await ask(site, chat(stream=stream), caller=Owner("hasty", timeout=0.06))
    assert failure(exchange) == (504, "request_timeout")
    await clean(site)


async def test_what_a_request_asks_for_goes_before_its_keys_time(site: Served[FakeEngine]) -> None:
    patient = ask(site, caller=Owner("hasty", timeout=0.05), headers={"X-Request-Timeout-Ms": "60000"})
    hasty = await ask(site, caller=Owner("patient", timeout=60), headers=SOON)
    assert failure(hasty) == (504, "request_timeout")
    assert site.engine.sequences[0].aborted is False
    site.engine.sequences[0].end()
    assert (await patient).status == 200


@pytest.mark.parametrize("asked", [{}, {"X-Request-Timeout-Ms": "60000"}])
async def test_nobody_gets_more_time_than_the_server_gives(engine: FakeEngine, asked: dict[str, str]) -> None:
    async with serving(engine, "admission.request_timeout=0.06") as site:
        exchange = await ask(site, headers=asked, caller=Owner("patient", timeout=60))
        assert failure(exchange) == (504, "request_timeout")
        await clean(site)


@pytest.mark.parametrize("tokens", [0, 3])
@STREAMED
async def test_an_engine_that_says_no_more_is_given_up(engine: FakeEngine, tokens: int, stream: bool) -> None:
    async with serving(engine, "admission.stall_timeout=0.2") as site:
        exchange = ask(site, chat(stream=stream))
        sequence = await engine.sequence()
        for _ in range(tokens):
            sequence.say(" word")
        status = 200 if stream and tokens else 504
        assert failure(await exchange) == (status, "generation_stalled")
        await clean(site)


async def test_one_choice_that_goes_on_keeps_its_request_going(engine: FakeEngine) -> None:
    """A slow stream is not a stalled one: it takes longer than the limit in all, and never as long between tokens."""
    async with serving(engine, "admission.stall_timeout=0.6") as site:
        exchange = ask(site, chat(stream=True, n=2))
        speaking = await engine.sequence(1)
        for _ in range(16):
            await asyncio.sleep(0.05)
            speaking.say(" word")
        for sequence in engine.sequences:
            sequence.end()
        assert text_of((await exchange).events, 1) == " word" * 16
        assert (await site.records())[0]["outcome"] == "ok"


@STREAMED
async def test_a_client_that_goes_away_while_it_waits_frees_its_place(engine: FakeEngine, stream: bool) -> None:
    async with serving(engine, "admission.max_batch_size=1") as site:
        queue = site.services.admission.queue
        running, gone, after = ask(site), ask(site, chat(stream=stream)), ask(site)
        await until(lambda: len(queue) == 2)
        gone.disconnect()
        await gone
        await until(lambda: len(queue) == 1)
        engine.sequences[0].end()
        (await engine.sequence(1)).end()
        assert [(await exchange).status for exchange in (running, after)] == [200, 200]
        records = await site.records()
        assert [record["outcome"] for record in records].count("client_gone") == 1
        assert len(engine.sequences) == 2


async def test_a_client_that_goes_just_as_its_turn_comes_never_reaches_the_engine(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=1") as site:
        running, gone = ask(site), ask(site)
        await until(lambda: len(site.services.admission.queue) == 1)
        _, waiting = site.services.pipeline._tasks.values()
        engine.sequences[0].end()
        waiting.cancel()
        gone.disconnect()
        await asyncio.gather(_ended(running), _ended(gone))
        await clean(site)
        assert len(engine.sequences) == 1


async def _ended(exchange: Exchange) -> Exchange:
    return await exchange


class Busy(Payer):
    """Its limits answer when the test wants them to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_enter = asyncio.Event()

    async def reserve(self, tokens: int) -> None:
        await super().reserve(tokens)
        await self.may_enter.wait()


async def test_a_client_that_goes_while_its_limits_are_asked_never_reaches_the_engine(site: Served[FakeEngine]) -> None:
    caller = Busy()
    exchange = ask(site, caller=caller)
    await until(lambda: caller.reserved)
    exchange.disconnect()
    await exchange
    caller.may_enter.set()
    await until(lambda: caller.settled)
    await clean(site, aborted=())
    assert site.engine.sequences == []
    assert caller.settled == [(caller.reserved[0], 0)]


async def test_a_place_is_taken_until_the_engine_has_confirmed_the_abort(engine: FakeEngine) -> None:
    engine.lingers = True
    async with serving(engine, "admission.max_batch_size=1") as site:
        gone, after = ask(site), ask(site)
        first = await engine.sequence()
        gone.disconnect()
        await gone
        await until(lambda: first.aborted)
        await turns(200)
        assert (len(engine.sequences), site.services.admission.slots.in_use) == (1, 1)
        first.release()
        second = await engine.sequence(1)
        second.end()
        second.release()
        assert (await after).status == 200
        await until(lambda: site.idle)


@STREAMED
async def test_an_answer_is_not_kept_from_its_client_by_an_engine_that_lingers(
    site: Served[FakeEngine], stream: bool
) -> None:
    site.engine.lingers = True
    exchange = ask(site, chat(stream=stream))
    sequence = await site.engine.sequence()
    sequence.end()
    assert (await exchange).status == 200
    assert not site.idle
    sequence.release()
    await until(lambda: site.idle)
