"""Whole answers, byte for byte as tests/golden/ has them."""

import pytest

from server.engine.protocol import ModelInfo
from server.errors import EngineFailed
from server.request import FinishReason
from tests.conformance.cases import HERMES, THINK, TOOLS
from tests.conformance.replay import logprob_of
from tests.support import golden
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
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


CALL = ('\n<tool_call>\n{"name": "clock", ', '"arguments": {"zone":', ' "Łódź"}}', "\n</tool_call>")


def in_one_go(sequence: FakeSequence, *texts: str) -> None:
    for text in texts:
        sequence.say(text)
    sequence.end()


@pytest.mark.parametrize(("name", "stream"), [("chat_stream_call", True), ("chat_body_call", False)])
async def test_a_text_and_a_call(model: ModelInfo, name: str, stream: bool) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        exchange = site.open(CHAT, chat(stream=stream, **TOOLS))
        in_one_go(await site.engine.sequence(), "Let me", " look.", *CALL)
        golden.check(f"{name}.txt", (await exchange).body)


async def test_a_thought_and_a_text(model: ModelInfo) -> None:
    async with serving(FakeEngine(model), *THINK) as site:
        exchange = site.open(CHAT, chat(stream=True))
        in_one_go(await site.engine.sequence(), "<think>\n", "Hm", ".\n", "</think>\n\n", "Yes", ".")
        golden.check("chat_stream_thought.txt", (await exchange).body)


def with_logprobs(sequence: FakeSequence, text: str) -> None:
    ids = sequence._model.tokenizer.encode(text, add_special_tokens=False)
    asked, prompt = sequence.request.params.prompt_logprobs, sequence.request.prompt_token_ids
    for position, token_id in enumerate(ids):
        told = asked is not None and not position
        entries = [None, *(logprob_of(other, asked or 0) for other in prompt[1:])] if told else None
        sequence.push(token_id, logprobs=[logprob_of(token_id, 1)], prompt_logprobs=entries)
    sequence.end()


@pytest.mark.parametrize(("name", "fields"), [("chat_stream_logprobs", {"stream": True}), ("chat_body_logprobs", {})])
async def test_a_chat_with_log_probabilities_and_token_ids(
    site: Served[FakeEngine], name: str, fields: dict[str, object]
) -> None:
    exchange = site.open(CHAT, chat(logprobs=True, top_logprobs=1, return_token_ids=True, **fields))
    with_logprobs(await site.engine.sequence(), "ok 🫠")
    golden.check(f"{name}.txt", (await exchange).body)


@pytest.mark.parametrize(
    ("name", "fields"), [("completion_stream_logprobs", {"stream": True}), ("completion_body_logprobs", {})]
)
async def test_a_completion_with_an_echo_and_log_probabilities(
    site: Served[FakeEngine], name: str, fields: dict[str, object]
) -> None:
    exchange = site.open(COMPLETIONS, completion(prompt="Say ok:", echo=True, logprobs=1, **fields))
    with_logprobs(await site.engine.sequence(), " ok 🫠")
    golden.check(f"{name}.txt", (await exchange).body)


async def test_a_chat_stream_with_usage_in_each_chunk(site: Served[FakeEngine]) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    exchange = site.open(CHAT, chat(stream=True, stream_options=options))
    await say(exchange, site.engine, "Paris", " is")
    site.engine.sequences[0].end()
    golden.check("chat_stream_continuous_usage.txt", (await exchange).body)


async def test_a_chat_stream_that_runs_away(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True, response_format={"type": "json_object"}))
    await say(exchange, site.engine, '{"a":')
    site.engine.sequences[0].say("\n" * 600)
    golden.check("chat_stream_runaway.txt", (await exchange).body)
