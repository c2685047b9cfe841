"""Whole answers, byte for byte as tests/golden/ has them."""

import pytest

from server.errors import EngineFailed
from server.request import FinishReason
from tests.support import golden
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion
from tests.support.waiting import turns, until


async def say(exchange: Exchange, engine: FakeEngine, *texts: str, index: int = 0) -> None:
    """Let a sequence say one text after another, each only when the one before has been written."""
    sequence = await engine.sequence(index)
    for text in texts:
        written = len(exchange.writes)
        sequence.say(text)
        await until(lambda written=written: len(exchange.writes) > written)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "fields"),
    [("chat_stream", {}), ("chat_stream_usage", {"stream_options": {"include_usage": True}})],
)
async def test_a_chat_stream(site: Served[FakeEngine], name: str, fields: dict[str, object]) -> None:
    exchange = site.open(CHAT, chat(stream=True, **fields))
    await say(exchange, site.engine, "Paris", ' is "the"', "\ncapital 🙂")
    site.engine.sequences[0].end()
    await exchange
    golden.check(f"{name}.txt", exchange.body)


async def test_a_completion_stream(site: Served[FakeEngine]) -> None:
    exchange = site.open(COMPLETIONS, completion(stream=True))
    await say(exchange, site.engine, " Paris", " is")
    site.engine.sequences[0].say(" large", finish=FinishReason.LENGTH)
    await exchange
    golden.check("completion_stream.txt", exchange.body)


async def test_a_completion_stream_with_usage(site: Served[FakeEngine]) -> None:
    exchange = site.open(COMPLETIONS, completion(stream=True, stream_options={"include_usage": True}))
    await say(exchange, site.engine, " Paris")
    site.engine.sequences[0].end()
    await exchange
    golden.check("completion_stream_usage.txt", exchange.body)


async def test_a_chat_stream_of_two_choices(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True, n=2))
    second = await site.engine.sequence(1)
    second.say("one")
    second.say(" two")
    await turns()
    await say(exchange, site.engine, "alpha")
    await say(exchange, site.engine, " three", index=1)
    second.end()
    await turns()
    site.engine.sequences[0].say(" beta", finish=FinishReason.LENGTH)
    await exchange
    golden.check("chat_stream_two_choices.txt", exchange.body)


async def test_a_stream_that_fails_after_its_first_token(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True))
    await say(exchange, site.engine, "Paris")
    site.engine.sequences[0].push(error=EngineFailed())
    await exchange
    golden.check("chat_stream_error.txt", exchange.body)


async def test_a_completion_stream_that_fails_after_its_first_token(site: Served[FakeEngine]) -> None:
    exchange = site.open(COMPLETIONS, completion(stream=True))
    await say(exchange, site.engine, "Paris")
    site.engine.sequences[0].push(error=EngineFailed())
    await exchange
    golden.check("completion_stream_error.txt", exchange.body)


async def test_a_chat_answer_in_one_body(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(n=2))
    for index, text in enumerate(("Paris", "London")):
        sequence = await site.engine.sequence(index)
        sequence.say(text)
        sequence.end()
    await exchange
    golden.check("chat_body.txt", exchange.body)


async def test_a_completion_in_one_body(site: Served[FakeEngine]) -> None:
    exchange = site.open(COMPLETIONS, completion())
    (await site.engine.sequence()).say(" Paris", finish=FinishReason.LENGTH)
    await exchange
    golden.check("completion_body.txt", exchange.body)


async def test_an_error_in_one_body(site: Served[FakeEngine]) -> None:
    exchange = await site.post(CHAT, chat(temperature=-1))
    golden.check("error_body.txt", exchange.body)
