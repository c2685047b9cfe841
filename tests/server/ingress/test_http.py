"""The application behind its protocol on a real connection."""

import json

from tests.support import sse
from tests.support.engines import FakeEngine
from tests.support.live import Live, listening, request_bytes
from tests.support.site import CHAT, chat


async def answer_next(live: Live[FakeEngine], text: str, index: int) -> None:
    sequence = await live.engine.sequence(index)
    sequence.say(text)
    sequence.end()


async def test_one_connection_serves_streams_and_bodies_and_errors_in_turn(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as client:
        for number in range(3):
            client.post(CHAT, chat(stream=True))
            await answer_next(live, "streamed", 2 * number)
            assert await client.head() == 200
            assert client.headers["transfer-encoding"] == "chunked"
            assert sse.text_of(await client.events()) == "streamed"
            client.post(CHAT, chat())
            await answer_next(live, "whole", 2 * number + 1)
            assert await client.head() == 200
            assert json.loads(await client.body())["choices"][0]["message"]["content"] == "whole"
            client.post(CHAT, b"{")
            assert await client.head() == 400
            assert json.loads(await client.body())["error"]["code"] == "invalid_json"


async def test_pipelined_requests_are_answered_in_turn(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as client:
        client.write(request_bytes(CHAT, chat(stream=True)) + request_bytes(CHAT, chat()))
        await answer_next(live, "first", 0)
        assert await client.head() == 200
        assert sse.text_of(await client.events()) == "first"
        await answer_next(live, "second", 1)
        assert await client.head() == 200
        assert json.loads(await client.body())["choices"][0]["message"]["content"] == "second"


async def test_while_draining_a_refused_client_sees_its_connection_closed(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as client:
        live.services.draining = True
        client.post(CHAT, chat())
        assert await client.head() == 503
        assert client.headers["connection"] == "close"
        assert json.loads(await client.closed())["error"]["code"] == "server_shutting_down"


async def test_each_event_is_a_chunk_of_its_own_and_the_last_ones_share_one(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as client:
        client.post(CHAT, chat(stream=True))
        sequence = await engine.sequence()
        for number, text in enumerate((" a", " b", " c")):
            sequence.say(text)
            if number == 0:
                await client.head()
            assert sse.text_of(sse.events(await client.chunk())) == text
        sequence.end()
        last = sse.events(await client.chunk())
        assert sse.finish_reasons(last) == {0: "stop"}
        assert last[-1] == sse.DONE
        assert await client.chunk() == b""


async def test_a_client_that_asks_first_is_told_to_continue(engine: FakeEngine) -> None:
    async with listening(engine) as live, live.client() as client:
        request = request_bytes(CHAT, chat(), {"Expect": "100-continue"})
        head, _, body = request.partition(b"\r\n\r\n")
        client.write(head + b"\r\n\r\n")
        assert await client.head() == 100
        client.write(body)
        await answer_next(live, "ok", 0)
        assert await client.head() == 200
