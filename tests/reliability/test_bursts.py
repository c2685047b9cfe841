"""More than there is room for arrives at once: as many as fit are served, the others are told so, and nobody hangs."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.ingress import key_file
from server.ingress.key import Scope
from tests.reliability.readers import Reader, readers
from tests.support import sse
from tests.support.engines import FakeEngine
from tests.support.live import listening
from tests.support.site import CHAT, chat
from tests.support.waiting import until

SLOTS, PLACES = 8, 8
CAPACITY = SLOTS + PLACES
ROOM = (f"admission.max_batch_size={SLOTS}", f"admission.max_queue_size={PLACES}")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
async def test_of_a_burst_of_four_times_the_capacity_what_fits_is_served(engine: FakeEngine, stream: bool) -> None:
    async with listening(engine, *ROOM) as live, readers(live.port, 4 * CAPACITY) as burst:
        for reader in burst:
            reader.post(CHAT, chat(stream=stream, max_tokens=10))
        answered = {reader: asyncio.create_task(reader.head()) for reader in burst}
        extra = 4 * CAPACITY - CAPACITY
        await until(lambda: sum(head.done() for head in answered.values()) == extra)  # while nobody has finished
        refused = [reader for reader, head in answered.items() if head.done()]
        assert [await refusal(reader) for reader in refused] == [(503, "server_overloaded", "queue_full")] * extra
        assert len(engine.sequences) == SLOTS
        assert len(live.services.admission.queue) == PLACES

        await serve_all(engine, CAPACITY)
        for reader in set(burst) - set(refused):
            assert await answered[reader] == 200
            assert reasons(await reader.body(), stream) == {0: "stop"}
        await until(lambda: live.idle)
        assert live.services.metrics.requests == {("chat", "ok"): CAPACITY, ("chat", "server_overloaded"): extra}
        assert live.services.admission.refusals == {"queue_full": extra}


async def test_a_burst_of_one_key_is_cut_at_its_limit_and_another_key_has_room(
    engine: FakeEngine, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    limit = 3
    narrow = key_file.add(keys, "narrow", scopes=(Scope.INFER,), concurrent_requests=limit)
    wide = key_file.add(keys, "wide", scopes=(Scope.INFER,))
    async with listening(engine, *ROOM, f"keys.file={keys}") as live, readers(live.port, 4 * CAPACITY) as burst:
        *flood, other = burst
        for reader in flood:
            reader.post(CHAT, chat(max_tokens=10), {"Authorization": f"Bearer {narrow}"})
        answered = {reader: asyncio.create_task(reader.head()) for reader in flood}
        await until(lambda: sum(head.done() for head in answered.values()) == len(flood) - limit)
        refused = [reader for reader, head in answered.items() if head.done()]
        said = [await refusal(reader) for reader in refused]
        assert said == [(429, "rate_limit_exceeded", "concurrent_requests")] * len(refused)
        assert len(engine.sequences) == limit

        other.post(CHAT, chat(max_tokens=10), {"Authorization": f"Bearer {wide}"})
        await serve_all(engine, limit + 1)
        assert await other.head() == 200
        for reader in set(flood) - set(refused):
            assert await answered[reader] == 200
        await until(lambda: live.idle)


async def refusal(reader: Reader) -> tuple[int, str, str]:
    """Status, code and reason; whoever is refused knows when to come back, within what clients wait for."""
    assert 1 <= int(reader.headers["retry-after"]) <= 120
    error = json.loads(await reader.body())["error"]
    return reader.status, error["code"], error["reason"]


async def serve_all(engine: FakeEngine, count: int) -> None:
    for index in range(count):
        sequence = await engine.sequence(index)
        sequence.say("done")
        sequence.end()


def reasons(body: bytes, stream: bool) -> dict[int, str]:
    found: Sequence[object] = sse.events(body) if stream else [json.loads(body)]
    return sse.finish_reasons(list(found))
