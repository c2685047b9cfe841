import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import Any

import pytest

from sampling.params import SamplingParams
from server.engine.scripted_engine import ScriptedEngine
from server.errors import EngineDied, EngineFailed, NotReady
from server.request import EngineRequest, FinishReason, TokenDelta
from tests.server.conftest import MakeScripted
from tests.support.site import CHAT, chat, serving
from tests.support.sse import DONE
from tests.support.waiting import until


@asynccontextmanager
async def started(engine: ScriptedEngine) -> AsyncIterator[ScriptedEngine]:
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


class Taken:
    """One sequence's deltas, and when each came."""

    def __init__(self, engine: ScriptedEngine, prompt: int = 3, **params: Any) -> None:
        self.deltas: list[TokenDelta] = []
        self.releases = 0
        request = EngineRequest("x", list(range(prompt)), SamplingParams(**{"max_tokens": 5, **params}))
        self.handle = engine.submit(request, self.deltas.append, self._release)

    def _release(self) -> None:
        self.releases += 1

    @property
    def ended(self) -> bool:
        return bool(self.deltas) and (self.deltas[-1].finish_reason is not None or self.deltas[-1].error is not None)

    @property
    def ids(self) -> list[int]:
        return [token_id for delta in self.deltas for token_id in delta.token_ids]


async def test_it_plays_its_ids_over_and_over_until_the_limit(scripted: MakeScripted) -> None:
    async with started(scripted(token_ids=(7, 8, 9))) as engine:
        taken = Taken(engine)
        await until(lambda: taken.ended)
        assert taken.ids == [7, 8, 9, 7, 8]
        assert [delta.finish_reason for delta in taken.deltas] == [None] * 4 + [FinishReason.LENGTH]


async def test_it_stops_where_told_unless_the_request_ignores_that(scripted: MakeScripted) -> None:
    async with started(scripted(stop_after=2)) as engine:
        stopped, ignoring = Taken(engine), Taken(engine, ignore_eos=True)
        await until(lambda: stopped.ended and ignoring.ended)
        assert [len(stopped.ids), len(ignoring.ids)] == [3, 5]
        assert (stopped.deltas[-1].finish_reason, stopped.deltas[-1].stop_token) == (FinishReason.STOP, True)
        assert ignoring.deltas[-1].finish_reason is FinishReason.LENGTH


async def test_it_fails_where_told(scripted: MakeScripted) -> None:
    async with started(scripted(fail_after=2)) as engine:
        taken = Taken(engine)
        await until(lambda: taken.ended)
        assert isinstance(taken.deltas[-1].error, EngineFailed)
        assert len(taken.deltas) == 3


async def test_a_step_takes_what_the_cost_model_says(scripted: MakeScripted) -> None:
    async with started(scripted(step_ms=20, token_us=100, transfer_ms=10)) as engine:
        taken = Taken(engine, prompt=300, max_tokens=2)
        await until(lambda: taken.ended)
        first, second = taken.deltas
        assert first.sampled_ns - first.scheduled_ns >= (20 + 30) * 0.95e6
        assert second.sampled_ns - first.received_ns >= 20 * 0.95e6
        assert first.received_ns - first.sampled_ns >= 10 * 0.9e6
        assert first.scheduled_ns == second.scheduled_ns
        assert second.received_ns <= monotonic_ns()


async def test_no_more_sequences_run_than_there_are_slots_and_the_rest_wait_in_order(scripted: MakeScripted) -> None:
    async with started(scripted(max_num_seqs=2)) as engine:
        taken = [Taken(engine) for _ in range(5)]
        assert engine.in_flight == 5
        await until(lambda: all(one.ended for one in taken))
        assert engine.steps == 3 * 5
        scheduled = [one.deltas[0].scheduled_ns for one in taken]
        assert scheduled == sorted(scheduled)
        assert len(set(scheduled)) == 3
        assert engine.in_flight == 0


@pytest.mark.parametrize("queued", [True, False])
async def test_an_aborted_sequence_is_called_back_no_more_and_gives_its_slot_up(
    scripted: MakeScripted, queued: bool
) -> None:
    async with started(scripted(max_num_seqs=1, step_ms=1)) as engine:
        running, waiting = Taken(engine, max_tokens=10_000), Taken(engine)
        await until(lambda: len(running.deltas) > 2)
        aborted = waiting if queued else running
        aborted.handle.abort()
        aborted.handle.abort()
        count = len(aborted.deltas)
        if queued:
            await until(lambda: len(running.deltas) > 10)
        else:
            await until(lambda: waiting.ended)
        assert len(aborted.deltas) == count
        assert engine.in_flight == (1 if queued else 0)


async def test_after_its_end_a_sequence_may_be_aborted(scripted: MakeScripted) -> None:
    async with started(scripted()) as engine:
        taken = Taken(engine)
        await until(lambda: taken.ended)
        taken.handle.abort()
        assert engine.in_flight == 0


async def test_it_must_be_started_first(scripted: MakeScripted) -> None:
    engine = scripted()
    assert not engine.alive
    with pytest.raises(NotReady):
        _ = engine.model
    with pytest.raises(NotReady):
        Taken(engine)


async def test_when_it_dies_every_sequence_learns_of_it_and_none_comes_in(scripted: MakeScripted) -> None:
    async with started(scripted(max_num_seqs=1, step_ms=1)) as engine:
        running, waiting = Taken(engine, max_tokens=10_000), Taken(engine)
        await until(lambda: running.deltas)
        engine.kill()
        assert isinstance(running.deltas[-1].error, EngineDied)
        assert isinstance(waiting.deltas[-1].error, EngineDied)
        assert not engine.alive
        with pytest.raises(EngineDied):
            Taken(engine)


async def test_when_the_engine_dies_open_streams_end_with_an_error_and_ready_turns_503(scripted: MakeScripted) -> None:
    engine = scripted(step_ms=1)
    async with serving(engine) as site:
        exchanges = [site.open(CHAT, chat(stream=True, max_tokens=5000)) for _ in range(8)]
        bodies = [site.open(CHAT, chat(max_tokens=5000)) for _ in range(8)]
        await until(lambda: all(exchange.writes for exchange in exchanges))
        engine.kill()
        async with asyncio.timeout(10):  # two seconds are promised
            for exchange in exchanges:
                *_, error, done = (await exchange).events
                assert (error["error"]["code"], done) == ("engine_dead", DONE)
            for body in bodies:
                assert ((await body).status, body.error["code"]) == (503, "engine_dead")
        assert (await site.get("/ready")).status == 503
        assert (await site.get("/live")).status == 200
        assert (await site.post(CHAT, chat())).status == 503
        assert site.idle
