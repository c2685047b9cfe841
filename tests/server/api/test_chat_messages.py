"""What a chat's messages become for the model's template, and what the answer's message looks like."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from server.engine.protocol import ModelInfo, ModelTokenizer
from server.request import EngineRequest, FinishReason
from tests.conformance.cases import HERMES, THINK, TOOLS
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.sse import DONE, text_of
from tests.support.waiting import turns


class Recorder:
    """A model's tokenizer whose template keeps what it is given and says `prompt`."""

    def __init__(self, tokenizer: ModelTokenizer, prompt: str = "the prompt") -> None:
        self.backend, self.hf, self.encode = tokenizer.backend, tokenizer.hf, tokenizer.encode
        self.prompt = prompt
        self.messages: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] = []
        self.kwargs: dict[str, Any] = {}

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **kwargs: Any
    ) -> str:
        self.messages, self.tools, self.kwargs = list(map(dict, messages)), list(map(dict, tools)), kwargs
        return self.prompt


def recorded(model: ModelInfo, recorder: Recorder, *settings: str) -> AbstractAsyncContextManager[Served[FakeEngine]]:
    return serving(FakeEngine(replace(model, tokenizer=recorder)), *settings)


async def submitted(site: Served[FakeEngine], payload: dict[str, Any], path: str = CHAT) -> EngineRequest:
    """What reaches the engine of a request that is answered well."""
    begun = len(site.engine.sequences)
    exchange = site.open(path, payload)
    await turns()
    assert len(site.engine.sequences) > begun, (await exchange).body
    for sequence in site.engine.sequences[begun:]:
        sequence.end()
    assert (await exchange).status == 200
    return site.engine.sequences[begun].request


async def told(model: ModelInfo, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages as the template gets them."""
    recorder = Recorder(model.tokenizer)
    async with recorded(model, recorder) as site:
        await submitted(site, chat(messages=messages))
    return recorder.messages


# ---- messages in


async def test_an_assistants_calls_and_a_tools_answer_reach_the_template(model: ModelInfo) -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Łódź", "days": [1, 2]}'}
    call = {"id": "call_1", "type": "function", "function": function}
    assert await told(
        model,
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ) == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": {"city": "Łódź", "days": [1, 2]}},
                }
            ],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
    ]


async def test_parts_of_text_are_joined_and_a_developer_is_a_system(model: ModelInfo) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]
    assert await told(
        model,
        {"role": "developer", "content": parts, "name": "me"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "reasoning": "hm"},
        {"role": "assistant", "content": "x", "reasoning_content": "thought"},
    ) == [
        {"role": "system", "content": "a b", "name": "me"},
        {"role": "assistant", "content": "No.", "reasoning_content": "hm"},
        {"role": "assistant", "content": "x", "reasoning_content": "thought"},
    ]


async def test_an_argument_text_may_be_missing(model: ModelInfo) -> None:
    calls = [{"id": "c", "function": {"name": "f"}}, {"id": "d", "function": {"name": "g", "arguments": ""}}]
    (message,) = await told(model, {"role": "assistant", "tool_calls": calls})
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == [{}, {}]


@pytest.mark.parametrize("arguments", ["{", "[]", "null", "1", '"x"', "{} {}", "[" * 100_000, '{"a":' * 100_000])
async def test_arguments_that_are_no_object_are_refused(site: Served[FakeEngine], arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    answer = await site.post(CHAT, chat(messages=[{"role": "assistant", "tool_calls": [call]}]))
    assert answer.status == 400
    assert answer.error["param"] == "messages"
    assert "arguments" in answer.error["message"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "x"}},
        {"type": "video_url", "video_url": {"url": "x"}},
    ],
    ids=lambda part: part["type"],
)
@pytest.mark.parametrize("position", [0, 1])
async def test_what_is_no_text_is_refused_with_the_reason(
    site: Served[FakeEngine], part: dict[str, Any], position: int
) -> None:
    parts: list[Any] = [{"type": "text", "text": "What is this?"}]
    parts.insert(position, part)
    answer = await site.post(CHAT, chat(messages=[{"role": "user", "content": parts}]))
    assert answer.status == 400
    assert answer.error["param"] == f"messages.0.content.{position}"
    assert "this server takes text only" in answer.error["message"]
    assert part["type"] in answer.error["message"]


@pytest.mark.parametrize(
    "calls",
    [
        {},
        "x",
        [1],
        [{}],
        [{"function": {}}],
        [{"function": {"name": ""}}],
        [{"function": {"name": "f g"}}],
        [{"function": {"name": "f\n"}}],
        [{"function": {"name": "f" * 65}}],
        [{"function": {"name": "f", "arguments": {}}}],
        [{"type": "custom", "function": {"name": "f"}}],
        [{"function": {"name": "f"}}] * 129,
    ],
    ids=lambda calls: repr(calls)[:40],
)
async def test_calls_of_a_wrong_shape_are_refused(site: Served[FakeEngine], calls: Any) -> None:
    answer = await site.post(CHAT, chat(messages=[{"role": "assistant", "content": "", "tool_calls": calls}]))
    assert answer.status == 400
    assert str(answer.error["param"]).startswith("messages.0.tool_calls")


# ---- options of the template


async def test_the_templates_options_reach_it(model: ModelInfo) -> None:
    recorder = Recorder(model.tokenizer)
    async with recorded(model, recorder) as site:
        await submitted(site, chat(chat_template_kwargs={"enable_thinking": False, "thinking": True}))
        assert recorder.kwargs == {"enable_thinking": False, "thinking": True}
        await submitted(site, chat(reasoning_effort="low"))
        assert recorder.kwargs == {"reasoning_effort": "low"}
        await submitted(site, chat(reasoning_effort=None, chat_template_kwargs=None))
        assert recorder.kwargs == {}


async def test_the_operator_says_which_options_a_request_may_give(model: ModelInfo) -> None:
    recorder = Recorder(model.tokenizer)
    async with recorded(model, recorder, "chat.template_kwargs=[custom]") as site:
        await submitted(site, chat(chat_template_kwargs={"custom": 3}))
        assert recorder.kwargs == {"custom": 3}
        refused = await site.post(CHAT, chat(chat_template_kwargs={"enable_thinking": True}))
        assert refused.status == 400


@pytest.mark.parametrize(
    "kwargs",
    [
        {"messages": "x"},
        {"tools": "x"},
        {"chat_template": "{{ 1 }}"},
        {"add_generation_prompt": False},
        {"tokenize": True},
        {"": 1},
        {"enable_thinking": []},
        {"enable_thinking": {}},
        {"enable_thinking": None},
        {"enable_thinking": 0.5},
        {"enable_thinking": "x" * 65},
        {"enable_thinking": 10**4000},
        {"enable_thinking": True, "other": 1},
        [],
        "x",
        1,
    ],
    ids=lambda kwargs: repr(kwargs)[:40],
)
async def test_any_other_option_of_the_template_is_refused(site: Served[FakeEngine], kwargs: Any) -> None:
    answer = await site.post(CHAT, chat(chat_template_kwargs=kwargs))
    assert answer.status == 400
    assert str(answer.error["param"]).startswith("chat_template_kwargs")
    assert site.engine.sequences == []


@pytest.mark.parametrize("effort", ["", "huge", "LOW", 1, True])
async def test_an_effort_there_is_none_of_is_refused(site: Served[FakeEngine], effort: Any) -> None:
    answer = await site.post(CHAT, chat(reasoning_effort=effort))
    assert (answer.status, answer.error["param"]) == (400, "reasoning_effort")


# ---- what the engine is told


async def test_a_salt_is_hashed_and_a_priority_is_passed_on(site: Served[FakeEngine]) -> None:
    for path, payload in ((CHAT, chat()), (COMPLETIONS, completion())):
        first = await submitted(site, payload | {"cache_salt": "secret 🙂", "priority": -5}, path)
        again = await submitted(site, payload | {"cache_salt": "secret 🙂"}, path)
        other = await submitted(site, payload | {"cache_salt": "Secret 🙂"}, path)
        assert first.priority == -5
        assert again.priority == 0
        assert first.cache_salt == again.cache_salt != other.cache_salt
        assert first.cache_salt is not None
        assert "secret" not in first.cache_salt
        assert len(first.cache_salt) == 64
        assert (await submitted(site, payload, path)).cache_salt is None


# ---- thoughts


@pytest.mark.parametrize(
    ("setting", "fields"),
    [
        ("reasoning", ["reasoning"]),
        ("reasoning_content", ["reasoning_content"]),
        ("both", ["reasoning", "reasoning_content"]),
    ],
)
async def test_thoughts_are_told_under_the_name_the_operator_chose(
    model: ModelInfo, setting: str, fields: list[str]
) -> None:
    async with serving(FakeEngine(model), *THINK, f"chat.reasoning_field={setting}") as site:
        for index, stream in enumerate((True, False)):
            exchange = site.open(CHAT, chat(stream=stream))
            sequence = await site.engine.sequence(index)
            sequence.say("<think>Hm.</think>Yes")
            sequence.end()
            await exchange
            if stream:
                found = [event["choices"][0]["delta"] for event in exchange.events[:-1]]
                thoughts = {name: "".join(delta.get(name, "") for delta in found) for name in fields}
                names = {name for delta in found for name in delta}
            else:
                message = exchange.json["choices"][0]["message"]
                thoughts, names = {name: message[name] for name in fields}, set(message)
                assert message["content"] == "Yes"
            assert thoughts == dict.fromkeys(fields, "Hm.")
            assert {"reasoning", "reasoning_content"} & names == set(fields)


@pytest.mark.parametrize("ending", ["<think>", "<think>\n", "<think> \n\n"])
async def test_a_template_that_opens_the_thinking_is_understood(model: ModelInfo, ending: str) -> None:
    async with recorded(model, Recorder(model.tokenizer, f"<|im_start|>assistant\n{ending}"), *THINK) as site:
        exchange = site.open(CHAT, chat())
        (await site.engine.sequence()).say("Hm.\n</think>\n\nYes", finish=FinishReason.LENGTH)
        message = (await exchange).json["choices"][0]["message"]
        assert (message["reasoning"], message["content"]) == ("Hm.", "Yes")
        assert exchange.json["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_a_template_that_opens_and_closes_the_thinking_is_understood(model: ModelInfo) -> None:
    async with recorded(model, Recorder(model.tokenizer, "<think>\n\n</think>\n\n"), *THINK) as site:
        exchange = site.open(CHAT, chat())
        (await site.engine.sequence()).say("Yes", finish=FinishReason.LENGTH)
        message = (await exchange).json["choices"][0]["message"]
        assert message["content"] == "Yes"
        assert "reasoning" not in message
        assert exchange.json["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_thought_cut_by_the_token_limit_is_no_answer(model: ModelInfo, stream: bool) -> None:
    """Seen as truncated thinking that was returned as the answer."""
    async with serving(FakeEngine(model), *THINK) as site:
        exchange = site.open(CHAT, chat(stream=stream, max_completion_tokens=5))
        (await site.engine.sequence()).say("<think>\nHm, let me see", finish=FinishReason.LENGTH)
        await exchange
        if stream:
            assert not text_of([event for event in exchange.events if event != DONE and is_text(event)])
            assert exchange.events[-2]["choices"][0]["finish_reason"] == "length"
        else:
            (choice,) = exchange.json["choices"]
            assert (choice["message"]["content"], choice["finish_reason"]) == (None, "length")
            assert choice["message"]["reasoning"] == "Hm, let me see"
            usage = exchange.json["usage"]
            assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["completion_tokens"]


def is_text(event: dict[str, Any]) -> bool:
    return any(choice["delta"].get("content") is not None for choice in event["choices"])


@pytest.mark.parametrize("together", [True, False])
async def test_a_stop_string_does_not_put_thoughts_into_the_answer(model: ModelInfo, together: bool) -> None:
    """Seen as the end of a thought and its marker in the content once `stop` was set and a step had several tokens."""
    text = "<think>\nHm.\n\nRight.\n</think>\n\nYes.\n\nHuman: and"
    async with serving(FakeEngine(model), *THINK) as site:
        exchange = site.open(CHAT, chat(stream=True, stop=["\n\nHuman:"], logprobs=True, return_token_ids=True))
        sequence = await site.engine.sequence()
        ids = model.tokenizer.encode(text, add_special_tokens=False)
        for delta in [ids] if together else [[token_id] for token_id in ids]:
            sequence.push(*delta)
        await exchange
        deltas = [event["choices"][0]["delta"] for event in exchange.events[:-1]]
        assert "".join(delta.get("content") or "" for delta in deltas) == "Yes."
        assert "".join(delta.get("reasoning", "") for delta in deltas) == "Hm.\n\nRight."
        assert exchange.events[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_string_within_a_thought_does_not_end_the_answer(model: ModelInfo, stream: bool) -> None:
    """Seen as an answer whose content was null: the prompt's own words came up in the thought."""
    async with serving(FakeEngine(model), *THINK) as site:
        exchange = site.open(CHAT, chat(stream=stream, stop=["Question:"]))
        sequence = await site.engine.sequence()
        sequence.say("<think>Question: what?</think>42. Question: next")
        await exchange
        if stream:
            deltas = [event["choices"][0]["delta"] for event in exchange.events[:-1]]
            assert "".join(delta.get("content") or "" for delta in deltas) == "42. "
        else:
            assert exchange.json["choices"][0]["message"]["content"] == "42. "


async def test_the_tokens_of_thoughts_are_told_whatever_the_cut(model: ModelInfo) -> None:
    ids = model.tokenizer.encode("<think>Hm, 🙂.</think>Yes", add_special_tokens=False)
    counts = []
    async with serving(FakeEngine(model), *THINK, *HERMES) as site:
        for index, deltas in enumerate(([ids], [[token_id] for token_id in ids])):
            exchange = site.open(CHAT, chat(stream=True, stream_options={"include_usage": True}, **TOOLS))
            sequence = await site.engine.sequence(index)
            for delta in deltas:
                sequence.push(*delta)
            sequence.end()
            await exchange
            usage = exchange.events[-2]["usage"]
            assert usage["completion_tokens"] == len(ids) + 1
            counts.append(usage["completion_tokens_details"]["reasoning_tokens"])
    assert counts[0] == counts[1] > 0
