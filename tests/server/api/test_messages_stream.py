"""Anthropic's streams: their bytes, what they add up to, their keep-alive and their failures."""

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sampling.parts import Arguments, Part, Reasoning, ToolCall
from server.api.messages_shape import MessagesShape
from server.errors import EngineDied, EngineFailed, Overloaded
from server.request import FinishReason, GenerationRequest
from server.streaming.answer import Answer, Usage
from tests.support import golden
from tests.support.engines import FakeEngine
from tests.support.messages import MESSAGES, anonymous, ask, assembled, events, weather
from tests.support.site import Served, serving
from tests.support.waiting import turns, until

PARSED = ("chat.tool_parser=hermes", "chat.reasoning_parser=think")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln 🙂"}}\n</tool_call>'


@pytest.fixture
async def parsing(engine: FakeEngine) -> AsyncIterator[Served[FakeEngine]]:
    async with serving(engine, *PARSED) as site:
        yield site


async def streamed(
    site: Served[FakeEngine], *texts: str, finish: FinishReason | None = None, apart: bool = False, **fields: Any
) -> bytes:
    """The answer to a stream whose engine says `texts` (`apart`: each only when the one before is written)."""
    begun = len(site.engine.sequences)
    exchange = site.open(MESSAGES, ask(stream=True, **fields))
    sequence = await site.engine.sequence(begun)
    for position, text in enumerate(texts):
        written = len(exchange.writes)
        sequence.say(text, finish if position == len(texts) - 1 else None)
        if apart:
            await until(lambda written=written: len(exchange.writes) > written)  # type: ignore[misc]
    if finish is None:
        sequence.end()
    await exchange
    assert exchange.status == 200
    return exchange.body


async def collected(
    site: Served[FakeEngine], *texts: str, finish: FinishReason | None = None, **fields: Any
) -> dict[str, Any]:
    begun = len(site.engine.sequences)
    exchange = site.open(MESSAGES, ask(**fields))
    sequence = await site.engine.sequence(begun)
    for position, text in enumerate(texts):
        sequence.say(text, finish if position == len(texts) - 1 else None)
    if finish is None:
        sequence.end()
    await exchange
    assert exchange.status == 200
    body: dict[str, Any] = exchange.json
    return body


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(anonymous(orjson.dumps(message)))
    return found


async def test_a_stream_of_text(site: Served[FakeEngine]) -> None:
    body = await streamed(site, "Paris", ' is "the"', "\ncapital 🙂\u2028", apart=True)
    golden.check("messages_stream.txt", anonymous(body))


async def test_a_stream_with_tools(parsing: Served[FakeEngine]) -> None:
    body = await streamed(parsing, "I shall look.", f"\n{CALL}", f"\n{CALL}", tools=[weather()])
    golden.check("messages_stream_tools.txt", anonymous(body))


async def test_a_stream_with_thoughts(parsing: Served[FakeEngine]) -> None:
    body = await streamed(parsing, "<think>", "Let me", " see", "</think>", "Paris")
    golden.check("messages_stream_thinking.txt", anonymous(body))


async def test_a_stream_that_fails_after_its_first_token(site: Served[FakeEngine]) -> None:
    exchange = site.open(MESSAGES, ask(stream=True))
    sequence = await site.engine.sequence()
    sequence.say("Paris")
    await until(lambda: exchange.writes)
    sequence.push(error=EngineFailed())
    sequence.say(" never shown")
    await exchange
    assert exchange.complete
    golden.check("messages_stream_error.txt", anonymous(exchange.body))


async def test_an_answer_in_one_body(parsing: Served[FakeEngine]) -> None:
    exchange = parsing.open(MESSAGES, ask(tools=[weather()]))
    sequence = await parsing.engine.sequence()
    sequence.say(f"<think>Rain?</think>I shall look.{CALL}")
    sequence.end()
    await exchange
    golden.check("messages_body.txt", anonymous(exchange.body))


CASES: dict[str, tuple[Sequence[str], FinishReason | None, dict[str, Any], list[str], str]] = {
    "text": (["Paris", " is large"], None, {}, ["text"], "end_turn"),
    "nothing": ([], None, {}, [], "end_turn"),
    "to the limit": (["Paris"], FinishReason.LENGTH, {}, ["text"], "max_tokens"),
    "a stop sequence": (["Paris is"], None, {"stop_sequences": ["is"]}, ["text"], "stop_sequence"),
    "nothing but a stop sequence": (["is"], None, {"stop_sequences": ["is"]}, [], "stop_sequence"),
    "thoughts": (["<think>Hm.</think>", "Yes"], None, {}, ["thinking", "text"], "end_turn"),
    "thoughts cut by the limit": (["<think>Hm", " and"], FinishReason.LENGTH, {}, ["thinking"], "max_tokens"),
    "a call": ([CALL], None, {"tools": [weather()]}, ["tool_use"], "tool_use"),
    "text around calls": (
        ["I look: ", CALL, " and again ", CALL, CALL, " so."],
        None,
        {"tools": [weather()]},
        ["text", "tool_use", "text", "tool_use", "tool_use", "text"],
        "tool_use",
    ),
    "a call cut by the limit": ([CALL[:60]], FinishReason.LENGTH, {"tools": [weather()]}, ["tool_use"], "max_tokens"),
    "one call only": (
        [CALL, CALL],
        None,
        {"tools": [weather()], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ["tool_use"],
        "tool_use",
    ),
    "a forced call": (
        ['{"city": ', '"Köln"}'],
        None,
        {"tools": [weather()], "tool_choice": {"type": "tool", "name": "get_weather"}},
        ["tool_use"],
        "tool_use",
    ),
    "any call": (
        ['[{"name": "get_weather", "parameters": {"city": "Köln"}}]'],
        None,
        {"tools": [weather()], "tool_choice": {"type": "any"}},
        ["tool_use"],
        "tool_use",
    ),
    "no call": ([CALL], None, {"tools": [weather()], "tool_choice": {"type": "none"}}, ["text"], "end_turn"),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_stream_adds_up_to_the_body(parsing: Served[FakeEngine], case: str) -> None:
    texts, finish, fields, kinds, reason = CASES[case]
    body = await collected(parsing, *texts, finish=finish, **fields)
    assert [block["type"] for block in body["content"]] == kinds
    assert body["stop_reason"] == reason
    assert body["stop_sequence"] == ("is" if reason == "stop_sequence" else None)
    stream = await streamed(parsing, *texts, finish=finish, **fields)
    assert without_ids(assembled(stream)) == without_ids(body)


async def test_the_arguments_of_a_call_join_to_json(parsing: Served[FakeEngine]) -> None:
    found = events(await streamed(parsing, *CALL, tools=[weather()]))
    blocks = [event for event in found if event["type"] == "content_block_start"]
    pieces = [event["delta"]["partial_json"] for event in found if event["type"] == "content_block_delta"]
    assert len(blocks) == 1
    assert len(pieces) > 1
    assert orjson.loads("".join(pieces)) == {"city": "Köln 🙂"}


async def test_a_cut_call_is_empty_in_the_body_and_as_written_in_the_stream(parsing: Served[FakeEngine]) -> None:
    cut = CALL[:60]
    fields: dict[str, Any] = {"tools": [weather()]}
    body = await collected(parsing, cut, finish=FinishReason.LENGTH, **fields)
    assert body["content"][0]["input"] == {}
    found = events(await streamed(parsing, cut, finish=FinishReason.LENGTH, **fields))
    written = [event["delta"]["partial_json"] for event in found if event["type"] == "content_block_delta"]
    assert "".join(written).startswith('{"city')


async def test_large_numbers_in_arguments_stay_as_they_were_written(parsing: Served[FakeEngine]) -> None:
    said = CALL.replace('"Köln 🙂"', "12345678901234567890123")
    body = await collected(parsing, said, tools=[weather()])
    assert body["content"][0]["input"] == {"city": 12345678901234567890123}


TEXTS = st.text(min_size=1, max_size=5)
SPEECH: st.SearchStrategy[list[Part]] = st.one_of(
    TEXTS.map(lambda text: [text]),
    TEXTS.map(lambda text: [Reasoning(text)]),
    st.builds(
        lambda name, pieces: [ToolCall(name), *map(Arguments, pieces)],
        TEXTS,
        st.lists(TEXTS, max_size=3) | st.just(['{"a":', " 1}"]),
    ),
)


@settings(max_examples=300)
@given(st.lists(SPEECH, max_size=8), st.data())
def test_any_parts_in_any_steps_add_up_to_the_body(speech: list[list[Part]], data: st.DataObject) -> None:
    parts = [part for said in speech for part in said]
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(parts) - 1)), max_size=len(parts))))
    shape = MessagesShape(GenerationRequest("req-" + "0" * 32, [[1, 2, 3]], None), "m")  # type: ignore[arg-type]
    encoder = shape.encoder()
    choice: Any = SimpleNamespace(
        answer=Answer(), opened=False, cached_tokens=1, output_tokens=5, reasoning_tokens=2, stop_string=None
    )
    written = b""
    for start, end in pairwise([0, *cuts, len(parts)]):
        if step := parts[start:end]:
            for part in step:
                choice.answer.add(part)
            written += encoder.delta(choice, step)
            choice.opened = True
    choice.finish_reason = data.draw(st.sampled_from(FinishReason))
    usage = Usage(3, 5, 1, 2)
    written += encoder.finish(choice, None) + encoder.end(usage)
    stream: Any = SimpleNamespace(choices=[choice], usage=usage)
    assert assembled(written) == orjson.loads(orjson.dumps(shape.body(stream)))


ANSWER = f"<think>Rain or 🙂?\n</think>\n\nI look. {CALL}\n{CALL} Done. <tool"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sets(st.integers(1, len(ANSWER) - 1)), st.sampled_from([None, FinishReason.LENGTH]))
async def test_an_answer_cut_into_any_deltas_is_the_same(
    parsing: Served[FakeEngine], cuts: set[int], finish: FinishReason | None
) -> None:
    pieces = [ANSWER[start:end] for start, end in pairwise([0, *sorted(cuts), len(ANSWER)])]
    fields: dict[str, Any] = {"tools": [weather()], "stop_sequences": ["never"]}
    body = await collected(parsing, *pieces, finish=finish, **fields)
    assert [block["type"] for block in body["content"]] == ["thinking", "text", "tool_use", "tool_use", "text"]
    stream = await streamed(parsing, *pieces, finish=finish, **fields)
    assert without_ids(assembled(stream)) == without_ids(body)


async def test_timings_come_with_the_end_when_asked_for(site: Served[FakeEngine]) -> None:
    delta, _ = events(await streamed(site, "Paris", include_timings=True))[-2:]
    assert "stages_ms" in delta["timings"]


async def test_a_silent_stream_is_pinged_also_before_it_starts(engine: FakeEngine) -> None:
    async with serving(engine, "http.keepalive=0.01") as site:
        exchange = site.open(MESSAGES, ask(stream=True))
        sequence = await engine.sequence()
        await until(lambda: exchange.writes)
        sequence.say("Paris")
        begun = len(exchange.writes) + 1
        await until(lambda: len(exchange.writes) > begun)
        sequence.end()
        await exchange
    kinds = [event["type"] for event in events(exchange.body)]
    assert kinds[0] == "ping"
    assert "ping" in kinds[kinds.index("content_block_delta") :]
    assert assembled(exchange.body)["content"] == [{"type": "text", "text": "Paris", "citations": None}]


async def test_a_failure_after_a_ping_is_an_event(engine: FakeEngine) -> None:
    async with serving(engine, "http.keepalive=0.01") as site:
        exchange = site.open(MESSAGES, ask(stream=True))
        sequence = await engine.sequence()
        await until(lambda: exchange.writes)
        sequence.push(error=EngineDied())
        await exchange
    assert exchange.status == 200
    *pings, error = events(exchange.body)
    assert {event["type"] for event in pings} == {"ping"}
    assert error["error"] == {"type": "overloaded_error", "message": EngineDied.default_message}
    assert error["request_id"] == exchange.headers["request-id"]


@pytest.mark.parametrize("texts", [("Paris",), ("<think>", "Hm"), (CALL[:60],)], ids=["text", "thinking", "tool"])
async def test_a_failed_stream_never_looks_finished(parsing: Served[FakeEngine], texts: tuple[str, ...]) -> None:
    exchange = parsing.open(MESSAGES, ask(stream=True, tools=[weather()]))
    sequence = await parsing.engine.sequence()
    for text in texts:
        sequence.say(text)
    await until(lambda: exchange.writes)
    sequence.push(error=Overloaded())
    await exchange
    kinds = [event["type"] for event in events(exchange.body)]
    assert kinds[-1] == "error"
    assert not {"content_block_stop", "message_delta", "message_stop"} & set(kinds)
    await turns()
    assert parsing.idle
