"""Responses and messages: the same answer however it is cut, streamed and whole."""

import json
import re
from typing import Any

import pytest

from server.engine.protocol import ModelInfo
from tests.conformance.cases import CALLS, TEXT, THOUGHTS, Case
from tests.conformance.replay import ReplayEngine, partitions
from tests.conformance.test_chat import QUIET, ids_of
from tests.support import messages, responses
from tests.support.site import Served, serving

OURS = re.compile(r'"(?:msg|resp|req|call|toolu|fc|rs|chatcmpl)[_-][0-9a-f]+"')
TIMES = ("created_at", "completed_at")
# What these protocols have no word for.
CHATS_OWN = {"n", "logprobs", "include_stop_str_in_output"}


def anonymous(answer: dict[str, Any]) -> Any:
    """Without ids and times, which are each answer's own."""
    kept = {name: value for name, value in answer.items() if name not in TIMES}
    return json.loads(OURS.sub('"ID"', json.dumps(kept)))


def of_responses(case: Case) -> dict[str, Any]:
    asks = {name: value for name, value in case.asks.items() if name not in ("tools", "tool_choice")}
    if "tools" in case.asks:
        asks["tools"] = [{"type": "function", **tool["function"]} for tool in case.asks["tools"]]
    match case.asks.get("tool_choice"):
        case {"function": function}:
            asks["tool_choice"] = {"type": "function", **function}
        case str(choice):
            asks["tool_choice"] = choice
    return responses.ask(store=False, **asks)


def of_messages(case: Case) -> dict[str, Any]:
    asks: dict[str, Any] = {}
    if stop := case.asks.get("stop"):
        asks["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    choice: dict[str, Any] = {"type": "auto"}
    match case.asks.get("tool_choice"):
        case {"function": function}:
            choice = {"type": "tool", **function}
        case "required":
            choice = {"type": "any"}
    if case.asks.get("parallel_tool_calls") is False:
        choice["disable_parallel_tool_use"] = True
    if "tools" in case.asks:
        functions = [tool["function"] for tool in case.asks["tools"]]
        asks["tools"] = [{"name": each["name"], "input_schema": each["parameters"]} for each in functions]
        asks["tool_choice"] = choice
    return messages.ask(**asks)


async def response(site: Served[ReplayEngine], case: Case) -> tuple[Any, Any]:
    asks = of_responses(case)
    streamed = await site.post(responses.RESPONSES, asks | {"stream": True})
    whole = await site.post(responses.RESPONSES, asks)
    found = responses.events(streamed.body)
    final = responses.final_of(found)
    texts = [part["text"] for item in final["output"] if item["type"] == "message" for part in item["content"]]
    assert "".join(texts) == responses.text_of(found)
    return anonymous(final), anonymous(whole.json)


async def message(site: Served[ReplayEngine], case: Case) -> tuple[Any, Any]:
    asks = of_messages(case)
    streamed = await site.post(messages.MESSAGES, asks | {"stream": True})
    whole = await site.post(messages.MESSAGES, asks)
    return anonymous(messages.assembled(streamed.body)), anonymous(whole.json)


def said_in_response(answer: Any) -> tuple[str, str, list[tuple[str, str]]]:
    text = thought = ""
    calls = []
    for item in answer["output"]:
        match item["type"]:
            case "message":
                text += "".join(part["text"] for part in item["content"])
            case "reasoning":
                thought += "".join(part["text"] for part in item["content"])
            case "function_call":
                calls.append((item["name"], item["arguments"]))
    return text, thought, calls


def said_in_message(answer: Any) -> tuple[str, str, list[tuple[str, Any]]]:
    blocks = answer["content"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    thought = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
    return text, thought, [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]


CASES = [case for case in [*TEXT, *CALLS, *THOUGHTS] if not CHATS_OWN & case.asks.keys()]


@pytest.mark.parametrize("case", [case for case in CASES if "stop" not in case.asks], ids=lambda case: case.name)
async def test_a_response_is_the_same_however_it_is_cut(model: ModelInfo, case: Case) -> None:
    ids = ids_of(model, case)
    engine = ReplayEngine(model)
    async with serving(engine, *QUIET, *case.settings) as site:
        expected = None
        for partition in partitions(ids, seed=len(ids)):
            engine.partition, engine.finish = partition, case.ends
            streamed, whole = await response(site, case)
            expected = expected or whole
            assert streamed == whole == expected, partition
    assert said_in_response(expected) == (case.content or "", case.reasoning, list(case.calls))
    assert expected["status"] == ("incomplete" if case.finish == "length" else "completed")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_message_is_the_same_however_it_is_cut(model: ModelInfo, case: Case) -> None:
    ids = ids_of(model, case)
    engine = ReplayEngine(model)
    async with serving(engine, *QUIET, *case.settings) as site:
        expected = None
        for partition in partitions(ids, seed=len(ids)):
            engine.partition, engine.finish = partition, case.ends
            streamed, whole = await message(site, case)
            expected = expected or whole
            assert streamed == whole == expected, partition
    inputs = [(name, json.loads(arguments) if case.finish != "length" else {}) for name, arguments in case.calls]
    assert said_in_message(expected) == (case.content or "", case.reasoning, inputs)
