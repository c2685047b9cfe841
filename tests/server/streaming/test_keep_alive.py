from server.errors import EngineFailed
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, chat, serving
from tests.support.sse import DONE, events, text_of
from tests.support.waiting import until


async def test_after_a_long_wait_headers_and_empty_lines_leave_before_the_first_token(engine: FakeEngine) -> None:
    async with serving(engine, "http.keepalive=0.02") as site:
        exchange = site.open(CHAT, chat(stream=True))
        await until(lambda: len(exchange.writes) >= 2)
        assert exchange.status == 200
        assert set(exchange.writes) == {b"\n"}
        sequence = await engine.sequence()
        sequence.say("Paris")
        sequence.end()
        await exchange
        assert text_of(exchange.events) == "Paris"
        assert exchange.events[-1] == DONE


async def test_an_error_after_the_headers_left_is_an_event_also_before_the_first_token(engine: FakeEngine) -> None:
    async with serving(engine, "http.keepalive=0.02") as site:
        exchange = site.open(CHAT, chat(stream=True))
        await until(lambda: exchange.writes)
        engine.sequences[0].push(error=EngineFailed())
        await exchange
        assert exchange.status == 200
        error, done = exchange.events
        assert error["error"]["code"] == "engine_error"
        assert done == DONE
        assert (await site.records())[0]["outcome"] == "engine_error"


async def test_empty_lines_stand_between_events_never_inside_one(engine: FakeEngine) -> None:
    async with serving(engine, "http.keepalive=0.02") as site:
        exchange = site.open(CHAT, chat(stream=True))
        sequence = await engine.sequence()
        for text in ("one", " two"):
            sequence.say(text)
            silent = len(exchange.writes)
            await until(lambda silent=silent: exchange.writes[silent:].count(b"\n") >= 2)  # type: ignore[misc]
        sequence.end()
        await exchange
        assert all(write == b"\n" or events(write) for write in exchange.writes)
        assert text_of(exchange.events) == "one two"
        assert not exchange.body.endswith(b"\n\n\n")


async def test_without_keep_alive_nothing_leaves_before_the_first_token(engine: FakeEngine) -> None:
    async with serving(engine, "http.keepalive=0") as site:
        exchange = site.open(CHAT, chat(stream=True))
        (await engine.sequence()).end()
        await exchange
        assert b"\n\n\n" not in exchange.body
