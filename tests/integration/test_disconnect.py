"""A client that goes away takes its engine request with it, wherever that was."""

import asyncio

import pytest

from tests.integration.http import CHAT, COMPLETIONS, OpenRequest, chat, completion, long_one
from tests.integration.live import DEADLINE_S, SLOTS, LiveServer, until


async def gone(live: LiveServer) -> None:
    await until(live.idle, "the engine works on nothing any more")


def outcomes(live: LiveServer) -> list[str]:
    return [record["outcome"] for record in live.services.records.latest(64)]


@pytest.mark.parametrize("path, body", [(CHAT, chat), (COMPLETIONS, completion)])
async def test_leaving_a_stream_aborts_its_request(live: LiveServer, path, body) -> None:
    request = await OpenRequest.send(live, path, body(stream=True, **long_one()))
    assert b"data: " in await request.first_event()
    await until(lambda: live.running == 1, "vLLM's series tell of the step")
    await request.close()
    await gone(live)
    assert outcomes(live)[0] == "client_gone"


async def test_leaving_before_the_first_token_aborts_the_request(live: LiveServer) -> None:
    request = await OpenRequest.send(live, CHAT, chat("word " * 1500, stream=True, max_tokens=64, ignore_eos=True))
    await until(lambda: live.unfinished == 1, "the engine has the request", DEADLINE_S)
    await request.close()
    await gone(live)
    assert outcomes(live)[0] == "client_gone"


@pytest.mark.parametrize("path, body", [(CHAT, chat), (COMPLETIONS, completion)])
async def test_leaving_a_non_streamed_request_aborts_it(live: LiveServer, path, body) -> None:
    request = await OpenRequest.send(live, path, body(**long_one()))
    await until(lambda: live.running == 1, "the engine generates", DEADLINE_S)
    await request.close()
    await gone(live)
    assert outcomes(live)[0] == "client_gone"


async def test_leaving_takes_all_choices_along(live: LiveServer) -> None:
    request = await OpenRequest.send(live, CHAT, chat(n=4, stream=True, **long_one()))
    await until(lambda: live.running == 4, "the engine generates", DEADLINE_S)
    await request.close()
    await gone(live)


async def test_leaving_while_queued_takes_the_queued_only(live: LiveServer) -> None:
    running = [await OpenRequest.send(live, COMPLETIONS, completion(stream=True, **long_one())) for _ in range(SLOTS)]
    await until(lambda: live.running == SLOTS, "the batch is full", DEADLINE_S)
    queued = [
        await OpenRequest.send(live, COMPLETIONS, completion(stream=streamed, **long_one()))
        for streamed in (True, True, True, False, False, False)
    ]
    queue = live.services.admission.queue
    await until(lambda: len(queue) == len(queued), "the others wait for a slot", DEADLINE_S)

    await asyncio.gather(*(request.close() for request in queued))
    await until(lambda: not queue, "the queued have gone", DEADLINE_S)
    assert live.unfinished == SLOTS
    await until(lambda: (live.running, live.waiting) == (SLOTS, 0), "the engine goes on with the others")
    assert b"data: " in await running[0].first_event()

    await asyncio.gather(*(request.close() for request in running))
    await gone(live)
    assert outcomes(live)[: SLOTS + len(queued)] == ["client_gone"] * (SLOTS + len(queued))
