"""The events of a response: their bytes, their order, and the object they add up to."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from server.errors import EngineFailed
from server.request import FinishReason
from tests.support import golden
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.responses import ENDS, RESPONSES, TOOL, ask, events, final_of, text_of
from tests.support.site import Served, serving
from tests.support.waiting import until

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
THOUGHTS = "<think>Hm, let me see.</think>Paris"


@pytest.fixture
async def site(engine: FakeEngine) -> AsyncIterator[Served[FakeEngine]]:
    async with serving(engine, "chat.tool_parser=hermes", "chat.reasoning_parser=think") as served:
        yield served


async def say(
    exchange: Exchange, engine: FakeEngine, *texts: str, finish: FinishReason = FinishReason.STOP
) -> Exchange:
    sequence = await engine.sequence(len(engine.sequences) - 1 if engine.sequences else 0)
    for text in texts:
        for token_id in engine.model.tokenizer.encode(text, add_special_tokens=False):
            sequence.push(token_id)
    sequence.end(finish)
    return await exchange


def fixed(response: dict[str, Any]) -> dict[str, Any]:
    """Without ids and times."""
    names = ("id", "call_id", "created_at", "completed_at")
    return {
        name: [fixed(item) for item in value] if name == "output" else value
        for name, value in response.items()
        if name not in names
    }


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("text", "Paris is big", {}),
        ("call", f"I ask.{CALL}", {"tools": [TOOL]}),
        ("reasoning", THOUGHTS, {"reasoning": {"effort": "low"}, "instructions": "Think."}),
    ],
)
async def test_a_stream_has_these_bytes(site: Served[FakeEngine], name: str, text: str, fields: dict[str, Any]) -> None:
    exchange = await say(site.open(RESPONSES, ask(stream=True, **fields)), site.engine, text)
    golden.check(f"responses_stream_{name}.txt", exchange.body)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("Paris is big", {}),
        ("", {}),
        (f"I ask.{CALL}", {"tools": [TOOL]}),
        (f"{CALL}\n{CALL}", {"tools": [TOOL]}),
        (THOUGHTS, {}),
        ("<think>never ending", {}),
        (f"<think>Hm</think>{CALL}", {"tools": [TOOL]}),
    ],
)
@pytest.mark.parametrize("finish", list(FinishReason))
async def test_a_streams_last_object_is_the_answer_that_is_not_streamed(
    site: Served[FakeEngine], text: str, fields: dict[str, Any], finish: FinishReason
) -> None:
    exchange = site.open(RESPONSES, ask(stream=True, **fields))
    await until(lambda: len(site.engine.sequences) == 1)
    streamed = final_of(events((await say(exchange, site.engine, text, finish=finish)).body))
    exchange = site.open(RESPONSES, ask(**fields))
    await until(lambda: len(site.engine.sequences) == 2)
    whole = (await say(exchange, site.engine, text, finish=finish)).json
    assert fixed(streamed) == fixed(whole)
    assert whole["status"] == ("completed" if finish is FinishReason.STOP else "incomplete")


async def test_every_item_is_opened_filled_and_closed_before_the_next(site: Served[FakeEngine]) -> None:
    exchange = site.open(RESPONSES, ask(stream=True, tools=[TOOL]))
    found = events((await say(exchange, site.engine, f"<think>Hm</think>I ask.{CALL}")).body)
    opened: list[str] = []
    seen = [event["type"].removeprefix("response.") for event in found]
    assert seen[:2] == ["created", "in_progress"] and f"response.{seen[-1]}" in ENDS
    for event in found:
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(opened)
            opened.append(event["item"]["id"])
        elif "item_id" in event:
            assert (event["output_index"], event["item_id"]) == (len(opened) - 1, opened[-1])
    kinds = [event["item"]["type"] for event in found if event["type"] == "response.output_item.done"]
    assert kinds == ["reasoning", "message", "function_call"]
    assert [item["id"] for item in final_of(found)["output"]] == opened


async def test_the_token_limit_makes_an_answer_incomplete(site: Served[FakeEngine]) -> None:
    exchange = site.open(RESPONSES, ask(stream=True, max_output_tokens=3))
    found = events((await say(exchange, site.engine, "one two", finish=FinishReason.LENGTH)).body)
    assert found[-1]["type"] == "response.incomplete"
    response = final_of(found)
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    assert response["completed_at"] is None


async def test_a_failure_after_the_first_byte_ends_the_stream_as_failed(site: Served[FakeEngine]) -> None:
    exchange = site.open(RESPONSES, ask(stream=True))
    (await site.engine.sequence()).say("Par")
    await until(lambda: exchange.writes)
    site.engine.sequences[0].push(error=EngineFailed())
    found = events((await exchange).body)
    assert found[-1]["type"] == "response.failed"
    response = final_of(found)
    assert response["status"] == "failed"
    assert response["error"] == {"code": "engine_error", "message": EngineFailed.default_message}
    assert response["output"][0]["status"] == "incomplete"
    stored = await site.get(f"{RESPONSES}/{response['id']}")
    assert stored.json == response


async def test_a_failure_before_the_first_byte_is_a_status(site: Served[FakeEngine]) -> None:
    exchange = site.open(RESPONSES, ask(stream=True))
    (await site.engine.sequence()).push(error=EngineFailed())
    assert ((await exchange).status, exchange.error["code"]) == (500, "engine_error")


async def test_a_failure_after_a_keep_alive_still_begins_the_stream(engine: FakeEngine) -> None:
    async with serving(engine, "http.keepalive=0.01") as site:
        exchange = site.open(RESPONSES, ask(stream=True))
        sequence = await engine.sequence()
        await until(lambda: exchange.writes)
        sequence.push(error=EngineFailed())
        await exchange
    assert exchange.body.lstrip(b"\n") != exchange.body
    kinds = [event["type"] for event in events(exchange.body)]
    assert kinds == ["response.created", "response.in_progress", "response.failed"]


async def test_log_probabilities_come_when_asked_for(scripted: Any) -> None:
    async with serving(scripted(stop_after=3)) as site:
        fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        exchange = await site.post(RESPONSES, ask(stream=True, **fields))
    found = events(exchange.body)
    deltas = [event for event in found if event["type"] == "response.output_text.delta"]
    told = [entry for event in deltas for entry in event["logprobs"]]
    assert final_of(found)["output"][0]["content"][0]["logprobs"] == told
    assert final_of(found)["top_logprobs"] == 2


async def test_timings_are_in_the_last_object_when_asked_for(site: Served[FakeEngine]) -> None:
    streamed = await say(site.open(RESPONSES, ask(stream=True, include_timings=True)), site.engine, "Paris")
    assert "stages_ms" in final_of(events(streamed.body))["timings"]
    exchange = site.open(RESPONSES, ask(include_timings=True))
    await until(lambda: len(site.engine.sequences) == 2)
    assert "stages_ms" in (await say(exchange, site.engine, "Paris")).json["timings"]


async def test_whatever_the_text_is_it_stays_inside_its_event(site: Served[FakeEngine]) -> None:
    text = '"\\\n\ndata: [DONE]\n\n\u2028🙂'
    exchange = await say(site.open(RESPONSES, ask(stream=True)), site.engine, text)
    assert text_of(events(exchange.body)) == text
    assert final_of(events(exchange.body))["output"][0]["content"][0]["text"] == text
