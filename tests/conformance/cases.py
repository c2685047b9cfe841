"""Answers as models write them, and what is to be read from them."""

from dataclasses import dataclass, field
from typing import Any

from server.request import FinishReason

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}},
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
TOOLS = {"tools": [WEATHER, CLOCK]}

ENGLISH = "The capital of France is Paris, of course. Anything else?"
MANY_TONGUES = "Привет, мир! 안녕하세요 — 你好世界. مرحبا بالعالم. ½ ≠ ½ naïve façade\u2028done\u2029\x85."
EMOJI = "ok 👩‍👩‍👧‍👦 🇫🇷 🫠🥹 龜 🙂🙂 e\u0301 done"


@dataclass(frozen=True)
class Case:
    """`says` is the model's raw text; the rest is what a client is to get."""

    name: str
    says: str
    content: str | None
    asks: dict[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    ends: FinishReason = FinishReason.STOP


HERMES = ("chat.tool_parser=hermes",)
LLAMA3 = ("chat.tool_parser=llama3_json",)
QWEN3 = ("chat.tool_parser=qwen3_xml",)
THINK = ("chat.reasoning_parser=think",)
ARGUMENTS = '{"city": "São \\"Paulo\\" {[</tool_call", "days": 3}'

TEXT = [
    Case("plain text", ENGLISH, ENGLISH),
    Case("many tongues", MANY_TONGUES, MANY_TONGUES),
    Case("emoji", EMOJI, EMOJI),
    Case("cut by the token limit", ENGLISH, ENGLISH, finish="length", ends=FinishReason.LENGTH),
    Case("two choices", ENGLISH, ENGLISH, {"n": 2}),
    Case("a stop string", ENGLISH, "The capital of ", {"stop": ["France is", "never"]}),
    Case("a stop kept", ENGLISH, "The capital of France is", {"stop": "France is", "include_stop_str_in_output": True}),
    Case("a stop that almost comes", ENGLISH, ENGLISH, {"stop": ["Paris, of curse", "Anything elsewhere"]}),
    Case("a stop of emoji", EMOJI, "ok 👩‍👩‍👧‍👦 🇫🇷 ", {"stop": ["🫠🥹"]}),
    Case("a stop in many tongues", MANY_TONGUES, "Привет, мир! 안녕하세요 — ", {"stop": ["你好"]}),
    Case("log probabilities", EMOJI, EMOJI, {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}),
    Case(
        "log probabilities up to a stop",
        MANY_TONGUES,
        "Привет, мир! 안녕하세요 — ",
        {"logprobs": True, "top_logprobs": 1, "stop": ["你好"], "return_token_ids": True},
    ),
]

CALLS = [
    Case(
        "a hermes call",
        f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>',
        None,
        TOOLS,
        HERMES,
        calls=(("get_weather", ARGUMENTS),),
        finish="tool_calls",
    ),
    Case(
        "text, then two hermes calls",
        'Let me look 🙂.\n\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"arguments": {"city": "Ōsaka"}, "name": "get_weather"}\n</tool_call>\n',
        "Let me look 🙂.",
        TOOLS,
        HERMES,
        calls=(("clock", "{}"), ("get_weather", '{"city": "Ōsaka"}')),
        finish="tool_calls",
    ),
    Case("no hermes call after all", "1 < 2, <tool_ call> no\n", "1 < 2, <tool_ call> no\n", TOOLS, HERMES),
    Case(
        "a hermes call cut by the token limit",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par',
        None,
        TOOLS,
        HERMES,
        calls=(("get_weather", '{"city": "Par'),),
        finish="length",
        ends=FinishReason.LENGTH,
    ),
    Case(
        "one call where one is allowed",
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
        None,
        TOOLS | {"parallel_tool_calls": False},
        HERMES,
        calls=(("clock", "{}"),),
        finish="tool_calls",
    ),
    Case(
        "a stop string inside of a call does not count",
        'Hm. <tool_call>\n{"name": "get_weather", "arguments": {"city": "Hm"}}\n</tool_call>',
        "Hm.",
        TOOLS | {"stop": ['Hm"']},
        HERMES,
        calls=(("get_weather", '{"city": "Hm"}'),),
        finish="tool_calls",
    ),
    Case(
        "llama3 calls",
        f'{{"name": "get_weather", "parameters": {ARGUMENTS}}}; {{"name": "clock", "parameters": {{}}}}',
        None,
        TOOLS,
        LLAMA3,
        calls=(("get_weather", ARGUMENTS), ("clock", "{}")),
        finish="tool_calls",
    ),
    Case("json that is no llama3 call", '{"answer": 42, "ok": [1]}', '{"answer": 42, "ok": [1]}', TOOLS, LLAMA3),
    Case(
        "a qwen3 call",
        'Sure.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew "York"\n</parameter>\n'
        "<parameter=days>\n3\n</parameter>\n<parameter=exact>\ntrue\n</parameter>\n</function>\n</tool_call>",
        "Sure.",
        TOOLS,
        QWEN3,
        calls=(("get_weather", '{"city": "New \\"York\\"", "days": 3, "exact": true}'),),
        finish="tool_calls",
    ),
    Case(
        "a forced call of any tool",
        '[{"name": "clock", "parameters": {}}, {"name": "get_weather", "parameters": {"city": "Nîmes"}}]',
        None,
        TOOLS | {"tool_choice": "required"},
        calls=(("clock", "{}"), ("get_weather", '{"city": "Nîmes"}')),
        finish="tool_calls",
    ),
    Case(
        "a forced call of one tool",
        '{"city": "Nîmes"}',
        None,
        TOOLS | {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        calls=(("get_weather", '{"city": "Nîmes"}'),),
        finish="tool_calls",
    ),
]

THOUGHTS = [
    Case("a thought", "<think>\nHm 🙂.\n</think>\n\nParis.", "Paris.", {}, THINK, reasoning="Hm 🙂."),
    Case("no thought", "Paris <think> is.", "Paris <think> is.", {}, THINK),
    Case(
        "a thought that the token limit cut",
        "<think>\nHm, let me",
        None,
        {},
        THINK,
        reasoning="Hm, let me",
        finish="length",
        ends=FinishReason.LENGTH,
    ),
    Case(
        "a stop string counts in what is visible only",
        "<think>Question: what?</think>Answer. Question: next",
        "Answer. ",
        {"stop": ["Question:"]},
        THINK,
        reasoning="Question: what?",
    ),
    Case(
        "a thought, then a call",
        '<think>\nI need the clock.\n</think>\n\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
        None,
        TOOLS,
        (*THINK, *HERMES),
        reasoning="I need the clock.",
        calls=(("clock", "{}"),),
        finish="tool_calls",
    ),
    Case(
        "a thought with log probabilities",
        "<think>Hm.</think>\nParis 🙂.",
        "Paris 🙂.",
        {"logprobs": True, "return_token_ids": True},
        THINK,
        reasoning="Hm.",
    ),
]
