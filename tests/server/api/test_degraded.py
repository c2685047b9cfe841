"""Shorter answers in place of refusals: for whom, when, and how they are told."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from server.request import HIGH, LOW, NORMAL
from tests.server.admission.asking import ask
from tests.server.admission.tickets import Owner
from tests.support import messages, responses
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.waiting import until

CAP = 8
DEGRADED = "streamgauge-degraded"
LOW_KEY = Owner("low", LOW)
SETTINGS = ("admission.max_batch_size=1", f"admission.degrade.max_tokens={CAP}", "admission.degrade.from_wait=0.5")
PAYLOADS: dict[str, dict[str, Any]] = {
    CHAT: chat(max_tokens=100),
    COMPLETIONS: completion(max_tokens=100),
    messages.MESSAGES: messages.ask(max_tokens=100),
    responses.RESPONSES: responses.ask(max_output_tokens=100),
}


@pytest.fixture
async def pressed(engine: FakeEngine) -> AsyncIterator[Served[FakeEngine]]:
    """Its one slot is taken, for seconds as it seems."""
    async with serving(engine, *SETTINGS) as site:
        ask(site)
        await engine.sequence()
        for _ in range(100):
            site.services.admission.forecast.held(2.0)
        yield site
        await until(lambda: site.idle)


async def answered(site: Served[FakeEngine], exchange: Exchange) -> tuple[Exchange, int]:
    """The answer to what waits behind the one that runs, and the limit that the engine saw."""
    await until(lambda: site.services.admission.queue)
    site.engine.sequences[0].end()
    sequence = await site.engine.sequence(1)
    sequence.say("Paris")
    sequence.end()
    return await exchange, sequence.request.params.max_tokens


@pytest.mark.parametrize("path", PAYLOADS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
async def test_under_pressure_a_low_keys_answer_is_capped_and_its_header_says_so(
    pressed: Served[FakeEngine], path: str, stream: bool
) -> None:
    payload = {**PAYLOADS[path], "stream": stream}
    exchange, limit = await answered(pressed, ask(pressed, payload, path=path, caller=LOW_KEY))
    assert (exchange.status, limit) == (200, CAP)
    assert exchange.headers[DEGRADED] == f"max_tokens={CAP}"


@pytest.mark.parametrize("rank", [HIGH, NORMAL])
async def test_keys_of_other_classes_get_what_they_asked_for(pressed: Served[FakeEngine], rank: int) -> None:
    exchange, limit = await answered(pressed, ask(pressed, chat(max_tokens=100), caller=Owner("other", rank)))
    assert (limit, DEGRADED in exchange.headers) == (100, False)


async def test_an_answer_that_is_short_anyway_is_not_called_shortened(pressed: Served[FakeEngine]) -> None:
    exchange, limit = await answered(pressed, ask(pressed, chat(max_tokens=CAP - 1), caller=LOW_KEY))
    assert (limit, DEGRADED in exchange.headers) == (CAP - 1, False)


async def test_a_least_length_gives_way_with_the_limit(pressed: Served[FakeEngine]) -> None:
    asked = ask(pressed, chat(max_tokens=100, min_tokens=50), caller=LOW_KEY)
    _, limit = await answered(pressed, asked)
    assert (limit, pressed.engine.sequences[1].request.params.min_tokens) == (CAP, CAP)


async def test_without_pressure_nothing_is_capped(engine: FakeEngine) -> None:
    async with serving(engine, *SETTINGS) as site:
        exchange = ask(site, chat(max_tokens=100), caller=LOW_KEY)
        sequence = await engine.sequence()
        sequence.end()
        assert sequence.request.params.max_tokens == 100
        assert DEGRADED not in (await exchange).headers


async def test_it_is_off_unless_it_is_set(engine: FakeEngine) -> None:
    async with serving(engine, SETTINGS[0]) as site:
        ask(site)
        await engine.sequence()
        for _ in range(100):
            site.services.admission.forecast.held(2.0)
        exchange, limit = await answered(site, ask(site, chat(max_tokens=100), caller=LOW_KEY))
        assert (limit, DEGRADED in exchange.headers) == (100, False)
