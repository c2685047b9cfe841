"""Anthropic's requests: what becomes of each field, and what is refused."""

from typing import Any

import pytest

from server.request import EngineRequest, FinishReason, TokenDelta
from tests.support.engines import FakeEngine
from tests.support.messages import COUNT, MESSAGES, ask, error_of, weather
from tests.support.site import Served, serving
from tests.support.waiting import until

USER = {"role": "user", "content": "Hi"}
CALLED = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Köln"}}


def said(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}


@pytest.fixture
def rendered(site: Served[FakeEngine], monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, dict[str, Any]]]:
    """What the chat template was given: messages, tools and variables, call by call."""
    calls: list[tuple[Any, Any, dict[str, Any]]] = []

    def render(messages: Any, tools: Any = (), **kwargs: Any) -> str:
        calls.append((messages, tools, kwargs))
        return "prompt"

    monkeypatch.setattr(site.engine.model.tokenizer, "render_chat", render)
    return calls


async def submitted(site: Served[FakeEngine], **fields: Any) -> EngineRequest:
    """What a request asks of the engine."""
    exchange = site.open(MESSAGES, ask(**fields))
    index = len(site.engine.sequences)
    await until(lambda: exchange.complete or len(site.engine.sequences) > index)
    assert not exchange.complete, exchange.body
    sequence = site.engine.sequences[index]
    sequence.end()
    assert (await exchange).status == 200
    return sequence.request


async def test_sampling_fields_reach_the_engine(site: Served[FakeEngine]) -> None:
    params = (
        await submitted(site, max_tokens=7, temperature=0.5, top_p=0.8, top_k=40, stop_sequences=["a", "b"], seed=3)
    ).params
    assert (params.max_tokens, params.temperature, params.top_p, params.top_k) == (7, 0.5, 0.8, 40)
    assert (params.stop, params.seed) == (("a", "b"), 3)


async def test_what_has_no_meaning_here_is_tolerated(site: Served[FakeEngine]) -> None:
    await submitted(
        site,
        metadata={"user_id": "me"},
        service_tier="auto",
        context_management={"edits": []},
        cache_control={"type": "ephemeral"},
        thinking={"type": "enabled", "budget_tokens": 1024, "display": "summarized"},
        mcp_servers=[],
        container=None,
    )


async def test_a_conversation_becomes_what_templates_know(
    site: Served[FakeEngine], rendered: list[tuple[Any, Any, dict[str, Any]]]
) -> None:
    thinking = {"type": "thinking", "thinking": "Rain?", "signature": ""}
    redacted = {"type": "redacted_thinking", "data": "xyz"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("wet"), text("cold")]}
    failed = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no network", "is_error": True}
    empty = {"type": "tool_result", "tool_use_id": "toolu_9"}
    await submitted(
        site,
        system=[text("Be brief."), text("Be kind.")],
        messages=[
            said(text("One."), text("Two.")),
            said(text("Three.")),
            said(thinking, redacted, text("I look"), text(" it up."), CALLED, role="assistant"),
            said(result, failed, empty, text("Well?")),
            {"role": "assistant", "content": "Wet."},
            {"role": "system", "content": "Stay brief."},
            USER,
        ],
    )
    call = {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}
    assert rendered[-1][0] == [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "One.\nTwo.\nThree."},
        {"role": "assistant", "content": "I look it up.", "reasoning_content": "Rain?", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "wet\ncold", "name": "get_weather"},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "Error: no network", "name": "get_weather"},
        {"role": "tool", "tool_call_id": "toolu_9", "content": ""},
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": "Wet."},
        {"role": "system", "content": "Stay brief."},
        {"role": "user", "content": "Hi"},
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"enable_thinking": True, "thinking": True}),
        ({"thinking": {"type": "adaptive"}}, {"enable_thinking": True, "thinking": True}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False, "thinking": False}),
        ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ],
)
async def test_thinking_is_the_templates_business(
    site: Served[FakeEngine],
    rendered: list[tuple[Any, Any, dict[str, Any]]],
    fields: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    await submitted(site, **fields)
    assert rendered[-1][2] == expected


async def test_thinking_is_ignored_where_the_template_may_not_be_told(engine: FakeEngine) -> None:
    async with serving(engine, "chat.template_kwargs=[]") as site:
        await submitted(site, thinking={"type": "enabled", "budget_tokens": 1024})


async def test_tools_are_offered_unless_there_is_no_choice(
    engine: FakeEngine, site: Served[FakeEngine], rendered: list[tuple[Any, Any, dict[str, Any]]]
) -> None:
    await submitted(site, tools=[weather(type="custom")], tool_choice={"type": "any"})
    await submitted(site, tools=[weather()], tool_choice={"type": "none"})
    described = {"name": "get_weather", "description": "The weather.", "parameters": weather()["input_schema"]}
    assert [tools for _, tools, _ in rendered[-2:]] == [[{"type": "function", "function": described}], []]
    first, second = (sequence.request.params.structured for sequence in engine.sequences[-2:])
    assert first is not None
    assert first.kind == "json"
    assert second is None


@pytest.mark.parametrize("field", ["output_config", "output_format"])
async def test_an_answer_may_have_to_fit_a_schema(site: Served[FakeEngine], field: str) -> None:
    wanted = {"type": "json_schema", "schema": {"type": "object"}}
    structured = (await submitted(site, **{field: {"format": wanted} if field == "output_config" else wanted})).params
    assert structured.structured is not None
    assert structured.structured.kind == "json"


SCHEMALESS = {"name": "get_weather"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no max_tokens": ({"max_tokens": None}, "max_tokens: "),
    "max_tokens of zero": ({"max_tokens": 0}, "max_tokens: "),
    "too many tokens": ({"max_tokens": 100_000}, "This model's maximum context length is"),
    "no messages": ({"messages": []}, "messages: "),
    "an unknown role": ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: "),
    "content of no kind": ({"messages": [{"role": "user", "content": 1}]}, "messages.0.content"),
    "a block without text": ({"messages": [said({"type": "text"})]}, "messages.0.content.0.text"),
    "a block of no type": ({"messages": [said({"text": "x"})]}, "messages.0.content.0"),
    "an image": ({"messages": [said(IMAGE)]}, "messages.0.content.0: this server takes text only"),
    "a document": ({"messages": [said({"type": "document"})]}, "messages.0.content.0: this server takes text only"),
    "an image of a tool": (
        {"messages": [said({"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]})]},
        "messages.0.content.0.tool_result.content.0: this server takes text only",
    ),
    "a call by the user": ({"messages": [said(CALLED)]}, "messages: a tool_use block belongs to the assistant"),
    "a result by the assistant": (
        {"messages": [said({"type": "tool_result", "tool_use_id": "t"}, role="assistant"), USER]},
        "messages: a tool_result belongs",
    ),
    "an answer to continue": ({"messages": [USER, said(text("Hello"), role="assistant")]}, "messages: the last one"),
    "a system of images": ({"system": [IMAGE]}, "system.0: this server takes text only"),
    "a hot temperature": ({"temperature": 2.1}, "temperature: "),
    "too many stop sequences": ({"stop_sequences": ["x"] * 17}, "stop_sequences: "),
    "an empty stop sequence": ({"stop_sequences": [""]}, "stop_sequences.0: "),
    "another protocol's stop": ({"stop": "x"}, "`stop` is not supported"),
    "several answers": ({"n": 2}, "n: "),
    "a tool of Anthropic's": ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools: this server has no tool"),
    "a tool without a schema": ({"tools": [SCHEMALESS]}, "tools: `get_weather` needs an input_schema"),
    "a tool twice": ({"tools": [weather(), weather()]}, "tools: each name may occur once"),
    "tools that nobody reads": ({"tools": [weather()]}, "tools: this server has no tool parser"),
    "a choice of an unknown tool": (
        {"tools": [weather()], "tool_choice": {"type": "tool", "name": "other"}},
        "tool_choice: there is no tool of that name",
    ),
    "a choice without a name": ({"tools": [weather()], "tool_choice": {"type": "tool"}}, "tool_choice: `tool` needs"),
    "any of no tools": ({"tool_choice": {"type": "any"}}, "tool_choice: "),
    "servers of tools": ({"mcp_servers": [{"url": "http://x"}]}, "`mcp_servers` is not supported"),
    "a container": ({"container": "c"}, "`container` is not supported"),
    "thinking of an unknown kind": ({"thinking": {"type": "deep"}}, "thinking.type: "),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused_is_named(site: Served[FakeEngine], case: str) -> None:
    fields, message = REFUSED[case]
    answer = await site.post(MESSAGES, ask(**fields))
    assert answer.status == 400
    error = error_of(answer)
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(message)
    assert not site.engine.sequences


async def test_an_answer_is_a_message(site: Served[FakeEngine]) -> None:
    exchange = site.open(MESSAGES, ask())
    (await site.engine.sequence()).say("Paris", FinishReason.LENGTH)
    message = (await exchange).json
    assert message["id"] == f"msg_{exchange.headers['request-id'].removeprefix('req-')}"
    assert exchange.headers["x-request-id"] == exchange.headers["request-id"]
    assert (message["type"], message["role"], message["stop_reason"]) == ("message", "assistant", "max_tokens")
    assert message["content"] == [{"type": "text", "text": "Paris", "citations": None}]
    assert (message["usage"]["output_tokens"], message["usage"]["service_tier"]) == (1, "standard")


COUNTED: list[dict[str, Any]] = [
    {},
    {"system": "Be brief."},
    {"messages": [USER, {"role": "assistant", "content": "Hello"}, said(text("Who"), text("are you?"))]},
    {"tools": [weather()], "tool_choice": {"type": "any"}},
    {"thinking": {"type": "disabled"}},
]


@pytest.mark.parametrize("fields", COUNTED)
async def test_counted_tokens_are_those_of_the_answer(site: Served[FakeEngine], fields: dict[str, Any]) -> None:
    asked = ask(**fields)
    exchange = site.open(MESSAGES, asked)
    sequence = await site.engine.sequence()
    sequence.end()
    usage = (await exchange).json["usage"]
    del asked["max_tokens"]
    counted = await site.post(COUNT, asked)
    assert counted.json == {"input_tokens": usage["input_tokens"]}
    assert usage["input_tokens"] == len(sequence.request.prompt_token_ids)
    assert len(site.engine.sequences) == 1


async def test_a_prompt_longer_than_the_context_is_counted(site: Served[FakeEngine]) -> None:
    counted = await site.post(COUNT, ask(messages=[{"role": "user", "content": "word " * 2000}]))
    assert counted.json["input_tokens"] > site.engine.model.max_model_len


async def test_tokens_that_were_in_the_cache_are_counted_apart(site: Served[FakeEngine]) -> None:
    exchange = site.open(MESSAGES, ask())
    sequence = await site.engine.sequence()
    sequence._on_step(TokenDelta((504,), FinishReason.LENGTH, cached_tokens=16))
    usage = (await exchange).json["usage"]
    assert usage["cache_read_input_tokens"] == 16
    assert usage["input_tokens"] + 16 == len(sequence.request.prompt_token_ids)
