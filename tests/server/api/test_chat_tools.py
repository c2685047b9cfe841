"""Tools in a chat: which requests may offer them, what the engine is told, and how calls are answered."""

import json
from typing import Any

import pytest

from sampling.params import Structured
from server.app import build
from server.engine.protocol import ModelInfo
from server.request import FinishReason
from tests.conformance.cases import CLOCK, HERMES, LLAMA3, TOOLS, WEATHER
from tests.conformance.replay import logprob_of
from tests.server.api.test_chat_messages import Recorder, recorded, submitted
from tests.support.asgi import lifespan
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, Served, chat, serving, settings_of
from tests.support.waiting import until

NAMED = {"type": "function", "function": {"name": "clock"}}
CALL = '<tool_call>\n{"name": "clock", "arguments": {"zone": "Łódź"}}\n</tool_call>'


def function(name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


async def refused(site: Served[FakeEngine], **fields: Any) -> dict[str, Any]:
    answer = await site.post(CHAT, chat(**fields))
    assert answer.status == 400, answer.body
    assert site.engine.sequences == []
    return answer.error


# ---- requests


@pytest.mark.parametrize("fields", [{}, {"tool_choice": "auto"}, {"tool_choice": None}], ids=repr)
@pytest.mark.parametrize("stream", [True, False])
async def test_tools_nobody_here_reads_calls_of_are_refused_with_the_settings_name(
    site: Served[FakeEngine], fields: dict[str, Any], stream: bool
) -> None:
    """Seen as an answer of 200 with the syntax of the call as its text."""
    error = await refused(site, stream=stream, **TOOLS, **fields)
    assert (error["param"], error["code"]) == ("tools", "tool_parser_not_configured")
    assert "chat.tool_parser" in error["message"]


@pytest.mark.parametrize("choice", ["required", "none", NAMED], ids=["required", "none", "named"])
async def test_without_a_parser_a_call_may_be_forced_or_forbidden(site: Served[FakeEngine], choice: Any) -> None:
    request = await submitted(site, chat(tool_choice=choice, **TOOLS))
    assert (request.params.structured is None) is (choice == "none")


@pytest.mark.parametrize("tools", [None, []])
async def test_no_tools_need_no_parser(site: Served[FakeEngine], tools: Any) -> None:
    assert (await submitted(site, chat(tools=tools, tool_choice="auto"))).params.structured is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
@pytest.mark.parametrize("setting", ["chat.tool_parser=nonsense", "chat.reasoning_parser=nonsense"])
async def test_a_parser_there_is_none_of_keeps_the_server_from_being_ready(engine: FakeEngine, setting: str) -> None:
    failed: list[bool] = []
    app, services = build(settings_of(setting), engine=engine, on_load_failed=lambda: failed.append(True))
    async with lifespan(app):
        await until(lambda: failed or services.ready)
        assert (failed, services.ready) == ([True], False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [WEATHER], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [], "tool_choice": NAMED}, "tool_choice"),
        ({"tool_choice": NAMED}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [CLOCK, WEATHER, CLOCK]}, "tools"),
        ({"tools": [function(f"f{i}") for i in range(129)]}, "tools"),
        ({"tool_choice": "required", "response_format": {"type": "json_object"}, **TOOLS}, "tool_choice"),
        ({"tool_choice": NAMED, "structured_outputs": {"regex": "a"}, **TOOLS}, "tool_choice"),
    ],
    ids=lambda value: repr(value)[:50] if isinstance(value, dict) else value,
)
async def test_what_does_not_go_together_is_named(model: ModelInfo, fields: dict[str, Any], param: str) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        assert (await refused(site, **fields))["param"] == param


WRONG: dict[str, list[Any]] = {
    "tools": [
        {},
        "x",
        [1],
        [{}],
        [{"type": "function"}],
        [{"type": "custom", "custom": {"name": "f"}}],
        [{"type": "web_search"}],
        [function("")],
        [function("f g")],
        [function("é")],
        [function("f\n")],
        [function("f" * 65)],
        [function(parameters=[])],
        [function(parameters="{}")],
        [function(description=1)],
        [function(description="x" * 65_537)],
        [function(strict="true")],
    ],
    "tool_choice": [
        "any",
        "",
        1,
        True,
        [],
        {},
        {"type": "function"},
        {"type": "function", "function": {}},
        {"type": "function", "function": {"name": ""}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    ],
    "parallel_tool_calls": ["false", 0, []],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field in WRONG for value in WRONG[field]],
    ids=lambda value: repr(value)[:50],
)
async def test_a_wrong_value_is_named(model: ModelInfo, field: str, value: Any) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        error = await refused(site, **TOOLS | {field: value})
        assert str(error["param"]).split(".")[0] == field
        assert len(error["message"]) < 1000


@pytest.mark.parametrize(
    ("choice", "offered"),
    [("auto", [WEATHER, CLOCK]), ("required", [WEATHER, CLOCK]), (NAMED, [WEATHER, CLOCK]), ("none", [])],
    ids=["auto", "required", "named", "none"],
)
async def test_the_template_is_told_of_the_tools_unless_none_may_be_called(
    model: ModelInfo, choice: Any, offered: list[dict[str, Any]]
) -> None:
    recorder = Recorder(model.tokenizer)
    async with recorded(model, recorder, *HERMES) as site:
        await submitted(site, chat(tool_choice=choice, **TOOLS))
    assert [tool["function"] for tool in recorder.tools] == [{"description": ""} | tool["function"] for tool in offered]


async def test_only_a_forced_call_constrains_the_engine(model: ModelInfo) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        assert (await submitted(site, chat(**TOOLS))).params.structured is None
        named = (await submitted(site, chat(tool_choice=NAMED, **TOOLS))).params.structured
        assert named == Structured("json", '{"type": "object", "properties": {}}')
        required = (await submitted(site, chat(tool_choice="required", **TOOLS))).params.structured
        assert required is not None and isinstance(required.value, str)
        assert json.loads(required.value)["type"] == "array"
        fields = {"tool_choice": "required", "parallel_tool_calls": False}
        single = (await submitted(site, chat(**fields, **TOOLS))).params.structured
        assert single is not None and isinstance(single.value, str)
        assert json.loads(single.value)["maxItems"] == 1


async def test_a_format_that_special_tokens_mark_gets_to_see_them(model: ModelInfo) -> None:
    async with serving(FakeEngine(model), *LLAMA3) as site:
        assert not (await submitted(site, chat(**TOOLS))).params.skip_special_tokens
        for fields in ({}, {"tool_choice": "none", **TOOLS}, {"tool_choice": "required", **TOOLS}):
            assert (await submitted(site, chat(**fields))).params.skip_special_tokens


# ---- answers


async def test_a_call_in_one_body(model: ModelInfo) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        exchange = site.open(CHAT, chat(**TOOLS))
        sequence = await site.engine.sequence()
        sequence.say(CALL)
        sequence.end()
        (choice,) = (await exchange).json["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call.pop("id").startswith("call_")
    assert call == {"type": "function", "function": {"name": "clock", "arguments": '{"zone": "Łódź"}'}}


async def test_a_call_begins_with_its_name_and_its_id_and_goes_on_with_its_index(model: ModelInfo) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        exchange = site.open(CHAT, chat(stream=True, **TOOLS))
        sequence = await site.engine.sequence()
        for token_id in model.tokenizer.encode(CALL + CALL, add_special_tokens=False):
            sequence.push(token_id)
        sequence.end()
        await exchange
    *chunks, last = [event["choices"][0] for event in exchange.events[:-1]]
    assert (last["delta"], last["finish_reason"]) == ({}, "tool_calls")
    assert chunks[0]["delta"]["role"] == "assistant"
    calls = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", ())]
    begun = [call for call in calls if "id" in call]
    assert [call["index"] for call in begun] == [0, 1]
    assert len({call["id"] for call in begun}) == 2
    assert all(call["function"] == {"name": "clock", "arguments": ""} for call in begun)
    assert all(set(call) == {"index", "function"} for call in calls if "id" not in call)
    for index in (0, 1):
        pieces = [call["function"]["arguments"] for call in calls if call["index"] == index]
        assert json.loads("".join(pieces)) == {"zone": "Łódź"}


@pytest.mark.parametrize("stream", [True, False])
async def test_each_of_several_choices_has_calls_of_its_own(model: ModelInfo, stream: bool) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        exchange = site.open(CHAT, chat(stream=stream, n=3, **TOOLS))
        await site.engine.sequence(2)
        for index, sequence in enumerate(site.engine.sequences):
            sequence.say(CALL * index or "none")
            sequence.end()
        await exchange
    ids: dict[int, list[str]] = {0: [], 1: [], 2: []}
    reasons: dict[int, str] = {}
    for event in exchange.events[:-1] if stream else [exchange.json]:
        for choice in event["choices"]:
            found = choice["delta" if stream else "message"].get("tool_calls", ())
            ids[choice["index"]] += [call["id"] for call in found if "id" in call]
            reasons[choice["index"]] = choice["finish_reason"]
    assert [len(found) for found in ids.values()] == [0, 1, 2]
    assert len({call_id for found in ids.values() for call_id in found}) == 3
    assert reasons == {0: "stop", 1: "tool_calls", 2: "tool_calls"}


@pytest.mark.parametrize("stream", [True, False])
async def test_the_tokens_of_a_call_have_log_probabilities_too(model: ModelInfo, stream: bool) -> None:
    ids = model.tokenizer.encode("So. " + CALL, add_special_tokens=False)
    async with serving(FakeEngine(model), *HERMES) as site:
        exchange = site.open(CHAT, chat(stream=stream, logprobs=True, return_token_ids=True, **TOOLS))
        sequence = await site.engine.sequence()
        sequence.push(*ids, logprobs=[logprob_of(token_id, 0) for token_id in ids])
        sequence.end()
        await exchange
    entries, told = [], []
    for event in exchange.events[:-1] if stream else [exchange.json]:
        entries += (event["choices"][0]["logprobs"] or {"content": []})["content"]
        told += event["choices"][0].get("token_ids", [])
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "So. " + CALL
    assert told == [*ids, 2]


async def test_a_call_cut_by_the_token_limit_says_so(model: ModelInfo) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        exchange = site.open(CHAT, chat(**TOOLS))
        (await site.engine.sequence()).say(CALL[:50], finish=FinishReason.LENGTH)
        (choice,) = (await exchange).json["choices"]
    assert choice["finish_reason"] == "length"
    assert CALL[:50].endswith(choice["message"]["tool_calls"][0]["function"]["arguments"])


async def test_a_forbidden_call_is_text(model: ModelInfo) -> None:
    async with serving(FakeEngine(model), *HERMES) as site:
        exchange = site.open(CHAT, chat(tool_choice="none", **TOOLS))
        sequence = await site.engine.sequence()
        sequence.say(CALL)
        sequence.end()
        (choice,) = (await exchange).json["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (CALL, "stop")
