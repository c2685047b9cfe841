"""The end of a server as its queue sees it: who runs may finish, who waits is told at once to go elsewhere."""

import asyncio
from typing import Any

import pytest

from server.engine.protocol import ModelInfo
from tests.server.admission.asking import ask
from tests.support import messages, responses
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.sse import text_of
from tests.support.waiting import until

PAYLOADS: dict[str, dict[str, Any]] = {
    CHAT: chat(),
    COMPLETIONS: completion(),
    messages.MESSAGES: messages.ask(),
    responses.RESPONSES: responses.ask(),
}


def drain(site: Served[FakeEngine]) -> None:
    """What the first signal does."""
    site.services.draining = True
    site.services.admission.close()


def check_told(exchange: Exchange, path: str) -> None:
    assert exchange.status == 503
    assert exchange.headers["connection"] == "close"
    assert exchange.headers["retry-after"] == "5"
    if path == messages.MESSAGES:
        assert messages.error_of(exchange)["type"] == "overloaded_error"
    else:
        assert exchange.error["code"] == "server_shutting_down"


@pytest.mark.parametrize("path", PAYLOADS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
async def test_who_waits_is_sent_away_and_who_runs_finishes(engine: FakeEngine, path: str, stream: bool) -> None:
    async with serving(engine, "admission.max_batch_size=1") as site:
        payload = {**PAYLOADS[path], "stream": stream}
        running = ask(site, chat(stream=True))
        sequence = await engine.sequence()
        sequence.say("so far")
        waiting = [ask(site, payload, path=path) for _ in range(3)]
        await until(lambda: len(site.services.admission.queue) == 3)
        drain(site)
        for exchange in waiting:
            check_told(await exchange, path)
        assert len(site.services.admission.queue) == 0
        sequence.say(" and on")
        sequence.end()
        assert text_of((await running).events) == "so far and on"
        await until(lambda: site.idle)
        assert len(engine.sequences) == 1


@pytest.mark.parametrize("path", PAYLOADS)
async def test_who_comes_later_is_sent_away_at_the_door(site: Served[FakeEngine], path: str) -> None:
    drain(site)
    check_told(await ask(site, PAYLOADS[path], path=path), path)
    assert site.services.admission.refusals == {}
    assert site.engine.sequences == []


async def test_a_slot_that_comes_back_meanwhile_goes_to_nobody(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=1") as site:
        running, waiting = ask(site), ask(site)
        await until(lambda: len(site.services.admission.queue) == 1)
        drain(site)
        engine.sequences[0].end()
        check_told(await waiting, CHAT)
        assert (await running).status == 200
        await until(lambda: site.idle)
        assert len(engine.sequences) == 1


async def test_a_whole_application_that_ends_leaves_nobody_waiting(model: ModelInfo) -> None:
    engine = FakeEngine(model)
    async with serving(engine, "admission.max_batch_size=1", "admission.max_queue_size=50") as site:
        exchanges = [ask(site, chat(stream=number % 2 == 0)) for number in range(30)]
        await until(lambda: len(site.services.admission.queue) == 29)
        drain(site)
    async with asyncio.timeout(20):
        for exchange in exchanges:
            await exchange
    assert {exchange.error["code"] for exchange in exchanges} == {"server_shutting_down"}
