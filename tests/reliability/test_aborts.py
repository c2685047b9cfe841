"""Clients leave in crowds, at any byte and while they wait: nothing of theirs stays, and nobody else notices."""

import asyncio
import random
from itertools import count
from typing import Any

import pytest

from server.engine.scripted_engine import ScriptedEngine
from tests.reliability.readers import Reader, readers
from tests.server.conftest import MakeScripted
from tests.support import sse
from tests.support.engines import FakeEngine
from tests.support.golden import normalised
from tests.support.live import Live, listening
from tests.support.site import CHAT, chat
from tests.support.waiting import until

LENGTHS = (17, 29, 40)  # of answers, in tokens
ENDLESS = 50_000
DEADLINE_S = 100  # for a thousand clients and their server in one thread


def question(max_tokens: int, text: str = "Hi") -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return chat(messages=messages, stream=True, stream_options={"include_usage": True}, max_tokens=max_tokens)


async def survive(reader: Reader, tokens: int) -> bytes:
    """The body of an answer, read to its end."""
    reader.post(CHAT, question(tokens))
    assert await reader.head() == 200
    return normalised(await reader.body())


async def leave(reader: Reader, at_byte: int) -> None:
    """Gone after so many bytes of an answer that has no end of its own."""
    reader.post(CHAT, question(ENDLESS))
    assert await reader.head() == 200
    await reader.take(at_byte)
    reader.reset()


@pytest.mark.parametrize("streams", [200, pytest.param(1000, marks=pytest.mark.long)])
async def test_half_of_the_streams_leave_at_random_bytes_and_the_others_get_all_of_theirs(
    scripted: MakeScripted, streams: int
) -> None:
    engine: ScriptedEngine = scripted(step_ms=5, max_num_seqs=streams, max_model_len=2 * ENDLESS)
    chance = random.Random(20)
    async with listening(engine, "http.keepalive=0") as live, readers(live.port, streams + 1) as (first, *others):
        references = [await survive(first, tokens) for tokens in LENGTHS]
        assert all(body.endswith(b"data: [DONE]\n\n") for body in references)
        chance.shuffle(others)
        leavers, survivors = others[: streams // 2], others[streams // 2 :]
        async with asyncio.timeout(DEADLINE_S):
            async with asyncio.TaskGroup() as group:
                for reader in leavers:
                    group.create_task(leave(reader, chance.randrange(len(references[-1]))))
                bodies = await asyncio.gather(
                    *(survive(reader, LENGTHS[number % 3]) for number, reader in enumerate(survivors))
                )
        assert all(body == references[number % 3] for number, body in enumerate(bodies))
        await all_let_go_of(live)
        assert live.services.metrics.requests == {
            ("chat", "ok"): len(LENGTHS) + len(survivors),
            ("chat", "client_gone"): len(leavers),
        }


async def all_let_go_of(live: Live[ScriptedEngine]) -> None:
    """Nothing waits, nothing runs; two seconds are promised."""
    await until(lambda: live.engine.in_flight == 0, 10)
    await until(lambda: live.idle and not live.services.admission.queue, 10)


async def test_those_who_leave_the_queue_never_reach_the_engine_and_their_places_are_free(engine: FakeEngine) -> None:
    waiting = 40
    settings = ("admission.max_batch_size=1", f"admission.max_queue_size={waiting}", "http.keepalive=0")
    async with listening(engine, *settings, "admission.max_wait=100") as live, readers(live.port, waiting + 1) as all_:
        (running, *queued), queue = all_, live.services.admission.queue
        running.post(CHAT, question(10))
        await engine.sequence(0)
        for number, reader in enumerate(queued, 1):
            reader.post(CHAT, question(10, f"Place {number}"))
        await until(lambda: len(queue) == waiting)
        for reader in queued[::2]:
            reader.reset()
        await until(lambda: len(queue) == waiting // 2)
        staying = queued[1::2]

        for index in count():
            sequence = await engine.sequence(index)
            sequence.say("done")
            sequence.end()
            if index == len(staying):
                break
        for reader in (running, *staying):
            assert await reader.head() == 200
            assert sse.finish_reasons(await reader.events()) == {0: "stop"}
        await until(lambda: live.idle)
        # Other questions have other prompts.
        asked = [sequence.request.prompt_token_ids for sequence in engine.sequences]
        assert len(asked) == 1 + len(staying) == len(set(map(tuple, asked)))
        assert live.services.metrics.requests == {
            ("chat", "ok"): 1 + len(staying),
            ("chat", "client_gone"): waiting - len(staying),
        }
