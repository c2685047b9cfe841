"""Callers share the engine by tokens: a flood waits for itself, and its neighbours for a turn of it.

Orders and counts on the scripted engine; how long that takes is the bench's business.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from server.admission.queue import QUANTUM
from server.engine.scripted_engine import ScriptedEngine
from server.request import HIGH, LOW, NORMAL
from tests.server.admission.asking import ask
from tests.server.admission.tickets import Owner
from tests.server.conftest import MakeScripted
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.site import COMPLETIONS, Served, completion, serving
from tests.support.waiting import until

PROMPT = 1000  # tokens; each answer has 4
COST = PROMPT + 4
TURN = -(-QUANTUM // COST)  # requests that a caller's turn is enough for, at most
STEPS = {"step_ms": 3}


def batch(caller: Owner, site: Served[Any], count: int = 1) -> list[Exchange]:
    payload = completion(prompt=[504] * PROMPT, max_tokens=4)
    return [ask(site, payload, path=COMPLETIONS, caller=caller) for _ in range(count)]


class Finishes:
    """Whose requests were answered, in that order."""

    def __init__(self) -> None:
        self.owners: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def watch(self, owner: str, exchanges: list[Exchange]) -> None:
        self._tasks += [asyncio.create_task(self._wait(owner, exchange)) for exchange in exchanges]

    async def all(self) -> list[str]:
        await asyncio.gather(*self._tasks)
        return self.owners

    async def _wait(self, owner: str, exchange: Exchange) -> None:
        if (await exchange).status == 200:
            self.owners.append(owner)


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_light_caller_waits_for_a_turn_of_the_flood_each_time(scripted: MakeScripted, slots: int) -> None:
    engine: ScriptedEngine = scripted(**STEPS)
    async with serving(engine, f"admission.max_batch_size={slots}", "admission.max_queue_size=60") as site:
        finishes, queue = Finishes(), site.services.admission.queue
        flood, light = Owner("flood"), Owner("light")
        finishes.watch("flood", batch(flood, site, 30))
        await until(lambda: len(queue) >= 15)
        for _ in range(3):
            (exchange,) = batch(light, site)
            finishes.watch("light", [exchange])
            await exchange
        order = await finishes.all()
    assert Counter(order) == {"flood": 30, "light": 3}
    turns = [number for number, owner in enumerate(order) if owner == "light"]
    between = [later - earlier - 1 for earlier, later in zip([-1, *turns], turns, strict=False)]
    assert max(between[1:]) <= TURN + 2 * slots + 3
    assert turns[-1] < len(order) - 5  # it was through long before the flood


async def test_a_flood_is_turned_away_and_its_neighbour_is_not(scripted: MakeScripted) -> None:
    engine: ScriptedEngine = scripted(**STEPS)
    async with serving(engine, "admission.max_batch_size=1", "admission.max_queue_size=8") as site:
        admission = site.services.admission
        flood = batch(Owner("flood"), site, 30)
        await until(lambda: admission.refusals["queue_full"] >= 10)
        for _ in range(3):
            flood += batch(Owner("flood"), site, 3)
            (light,) = batch(Owner("light"), site)
            assert (await light).status == 200
        answers = Counter([(await exchange).status for exchange in flood])
        refusals = [exchange.error for exchange in flood if exchange.status == 503]
        assert answers.total() == 39
        assert {error["reason"] for error in refusals} == {"queue_full"}
        assert admission.refusals == {"queue_full": len(refusals)}
        await until(lambda: site.idle)
        assert (admission.slots.in_use, len(admission.queue)) == (0, 0)


async def test_callers_with_equal_floods_are_answered_in_equal_parts(scripted: MakeScripted) -> None:
    engine: ScriptedEngine = scripted(**STEPS)
    async with serving(engine, "admission.max_batch_size=1") as site:
        finishes = Finishes()
        for name in "abc":
            finishes.watch(name, batch(Owner(name), site, 15))
        order = await finishes.all()
    for served in range(1, 30):
        counts = Counter(order[:served])
        assert max(counts.values()) - min(counts[name] for name in "abc") <= TURN + 2


async def arrive(site: Served[FakeEngine], callers: Sequence[Owner], prompt_tokens: int = 1) -> list[Exchange]:
    """One request of each, in this order; their seeds count them."""
    queue, exchanges = site.services.admission.queue, []
    for number, caller in enumerate(callers):
        payload = completion(prompt=[504] * prompt_tokens, max_tokens=8, seed=number)
        exchanges.append(ask(site, payload, path=COMPLETIONS, caller=caller))
        await until(lambda expected=number: len(site.engine.sequences) + len(queue) > expected)  # type: ignore[misc]
    return exchanges


async def served(site: Served[FakeEngine], exchanges: list[Exchange]) -> list[int | None]:
    """Answer all; the seeds in the order in which the engine got them."""
    for number in range(len(exchanges)):
        (await site.engine.sequence(number)).end()
    assert [(await exchange).status for exchange in exchanges] == [200] * len(exchanges)
    return [sequence.request.params.seed for sequence in site.engine.sequences]


async def test_callers_without_a_key_are_one_caller(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=1") as site:
        exchanges = await arrive(site, [Owner(None) for _ in range(12)], prompt_tokens=400)
        assert await served(site, exchanges) == list(range(12))


async def test_a_higher_class_goes_first_whatever_waits(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=1") as site:
        classes = [("normal", NORMAL), ("low", LOW), ("low", LOW), ("normal", NORMAL), ("high", HIGH), ("high", HIGH)]
        exchanges = await arrive(site, [Owner(name, rank) for name, rank in classes])
        assert await served(site, exchanges) == [0, 4, 5, 3, 1, 2]


async def test_a_class_is_its_keys_and_no_wish_of_the_request(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=1") as site:
        running = ask(site)
        await engine.sequence()
        pushy = ask(site, completion(priority=-1000, seed=1), path=COMPLETIONS, caller=Owner("pushy", LOW))
        await until(lambda: len(site.services.admission.queue) == 1)
        modest = ask(site, completion(seed=2), path=COMPLETIONS, caller=Owner("modest"))
        await until(lambda: len(site.services.admission.queue) == 2)
        for number in range(3):
            (await engine.sequence(number)).end()
        assert [sequence.request.params.seed for sequence in engine.sequences[1:]] == [2, 1]
        for exchange in (running, pushy, modest):
            assert (await exchange).status == 200
