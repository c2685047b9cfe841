"""What a request sets aside of its caller's tokens, and what it pays in the end."""

from typing import Any

import pytest

from server.engine.scripted_engine import ScriptedEngine
from server.errors import EngineFailed, RateLimited
from server.request import FinishReason
from tests.server.admission.asking import ask
from tests.server.admission.tickets import Payer
from tests.server.conftest import MakeScripted
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.site import COMPLETIONS, Served, completion, serving
from tests.support.waiting import turns, until

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
PROMPT = [504, 3575, 282]  # three tokens


def paid(payer: Payer) -> int:
    """What it paid, once: of what it had set aside."""
    ((reserved, used),) = payer.settled
    assert payer.reserved == [reserved]
    return used


def ask_as(site: Served[Any], payer: Payer, **fields: Any) -> Exchange:
    payload = completion(prompt=PROMPT, max_tokens=10, **fields)
    return ask(site, payload, path=COMPLETIONS, caller=payer)


@pytest.mark.parametrize(("most", "reserved"), [(4096, 3 + 2 * 10), (6, 3 + 2 * 6)])
async def test_prompt_and_answers_are_set_aside_and_what_was_used_is_paid(
    engine: FakeEngine, most: int, reserved: int
) -> None:
    async with serving(engine, f"limits.reserve_tokens={most}") as site:
        payer = Payer()
        exchange = ask_as(site, payer, n=2)
        await engine.sequence(1)
        first, second = engine.sequences
        first.push(504, 3575)
        first.end()
        second.push(282, finish=FinishReason.LENGTH)
        assert (await exchange).status == 200
        await until(lambda: payer.settled)
        assert payer.reserved == [reserved]
        assert paid(payer) == 3 + 3 + 1  # the end of sequence is a token, too
        assert exchange.json["usage"]["total_tokens"] == 7


@pytest.mark.parametrize("tokens", [0, 2])
@STREAMED
async def test_a_client_that_goes_away_pays_for_what_was_computed(
    site: Served[FakeEngine], tokens: int, stream: bool
) -> None:
    payer = Payer()
    exchange = ask_as(site, payer, stream=stream)
    sequence = await site.engine.sequence()
    for _ in range(tokens):
        sequence.push(504)
    exchange.disconnect()
    await exchange
    await until(lambda: payer.settled)
    assert paid(payer) == 3 + tokens


async def test_a_request_that_fails_pays_for_what_was_computed(site: Served[FakeEngine]) -> None:
    payer = Payer()
    exchange = ask_as(site, payer)
    sequence = await site.engine.sequence()
    sequence.push(504)
    sequence.push(error=EngineFailed())
    assert (await exchange).status == 500
    await until(lambda: payer.settled)
    assert paid(payer) == 3 + 1


async def test_who_is_turned_away_pays_nothing(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=2", "admission.max_queue_size=0") as site:
        running = ask_as(site, Payer())
        await engine.sequence()
        payer = Payer()
        exchange = await ask_as(site, payer, n=2)  # the door has seen that there is a slot, not that there must be two
        assert (exchange.status, exchange.error["reason"]) == (503, "queue_full")
        await until(lambda: payer.settled)
        assert paid(payer) == 0
        engine.sequences[0].end()
        await running


async def test_who_is_turned_away_at_the_door_sets_nothing_aside(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=1", "admission.max_queue_size=0") as site:
        running = ask_as(site, Payer())
        await engine.sequence()
        payer = Payer()
        exchange = await ask_as(site, payer)
        assert (exchange.status, exchange.error["reason"]) == (503, "queue_full")
        assert (payer.reserved, payer.settled) == ([], [])
        engine.sequences[0].end()
        await running


async def test_who_waits_in_vain_pays_nothing(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=1", "admission.max_wait=0.05") as site:
        running = ask_as(site, Payer())
        await engine.sequence()
        payer = Payer()
        exchange = await ask_as(site, payer)
        assert (exchange.status, exchange.error["reason"]) == (503, "max_wait")
        await until(lambda: payer.settled)
        assert paid(payer) == 0
        engine.sequences[0].end()
        await running


class Spent(Payer):
    async def reserve(self, tokens: int) -> None:
        await super().reserve(tokens)
        raise RateLimited


async def test_who_has_no_tokens_left_neither_waits_nor_pays(site: Served[FakeEngine]) -> None:
    payer = Spent()
    exchange = await ask_as(site, payer)
    assert exchange.status == 429
    assert (len(payer.reserved), payer.settled, site.engine.sequences) == (1, [], [])


async def test_what_was_set_aside_comes_back_only_once_the_engine_has_let_go(site: Served[FakeEngine]) -> None:
    site.engine.lingers = True
    payer = Payer()
    exchange = ask_as(site, payer)
    sequence = await site.engine.sequence()
    exchange.disconnect()
    await exchange
    await turns(100)
    assert payer.settled == []
    sequence.release()
    await until(lambda: payer.settled)
    assert paid(payer) == 3


async def test_a_storm_of_callers_pays_exactly_what_their_answers_say(scripted: MakeScripted) -> None:
    engine: ScriptedEngine = scripted(stop_after=4)
    async with serving(engine, "admission.max_batch_size=3", "admission.max_queue_size=10") as site:
        payers = [Payer(f"payer-{number % 3}") for number in range(40)]
        exchanges = [ask_as(site, payer, n=1 + number % 2) for number, payer in enumerate(payers)]
        for payer, exchange in zip(payers, exchanges, strict=True):
            answer = await exchange
            used = answer.json["usage"]["total_tokens"] if answer.status == 200 else 0
            assert answer.status == 200 or answer.error["reason"] == "queue_full"
            await until(lambda payer=payer: len(payer.settled) == len(payer.reserved))  # type: ignore[misc]
            assert sum(pay for _, pay in payer.settled) == used
        refused = [exchange for exchange in exchanges if exchange.status == 503]
        assert site.services.admission.refusals == {"queue_full": len(refused)}
        assert 0 < len(refused) < 40
        await until(lambda: site.idle)
