"""Calls written as tags become JSON arguments of the tool's own types."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sampling.parts import Arguments, Parser, Part, ToolCall
from sampling.tools import Qwen3XmlParser
from tests.sampling.test_tool_splits import assert_same_in_every_split, calls, cut_at, read, visible

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TYPES: dict[str, Any] = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "o": {"type": "object"},
    "l": {"type": "array"},
    "z": {"type": "null"},
    "si": {"type": ["string", "integer"]},
    "oi": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "os": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "r": {"$ref": "#/$defs/Point"},
    "loop": {"$ref": "#/properties/loop"},
    "any": {},
    "odd": "no schema",
}
TOOLS: list[dict[str, Any]] = [
    {"name": "g"},
    {"name": "f", "parameters": {"type": "object", "properties": TYPES, "$defs": {"Point": {"type": "object"}}}},
]


def make() -> Parser:
    return Qwen3XmlParser(TOOLS)


def tags(**values: str) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>"


def call(arguments: str, name: str = "f") -> list[Part]:
    return [ToolCall(name), Arguments(arguments)]


VALUES = [
    ("s", "text", "text"),
    ("s", "5", "5"),
    ("s", "", ""),
    ("s", "\n two\n\nlines \n", "\n two\n\nlines \n"),
    ("s", 'a "b" \\ {"c"} 日本語 🙂 \t', 'a "b" \\ {"c"} 日本語 🙂 \t'),
    ("s", "<parameter=x> </function> </tool_call> </para", "<parameter=x> </function> </tool_call> </para"),
    ("i", "5", 5),
    ("i", " -7 ", -7),
    ("i", "five", "five"),
    ("i", "5.5", "5.5"),
    ("i", "true", "true"),
    ("n", "5.5e3", 5500.0),
    ("n", "NaN", "NaN"),
    ("b", "true", True),
    ("b", "False", False),
    ("b", "0", "0"),
    ("o", '{"a": [1, "}"]}', {"a": [1, "}"]}),
    ("o", "[1]", "[1]"),
    ("o", '{"a": ', '{"a": '),
    ("l", "[1,\n2]", [1, 2]),
    ("z", "null", None),
    ("z", "None", None),
    ("si", "5", "5"),
    ("oi", "5", 5),
    ("oi", "null", None),
    ("os", "null", "null"),
    ("r", '{"x": 1}', {"x": 1}),
    ("loop", "5", "5"),
    ("any", "5", "5"),
    ("odd", "5", "5"),
    ("unknown", "[5]", "[5]"),
    ("l", "[" * 5000, "[" * 5000),
]


@pytest.mark.parametrize(("key", "value", "meant"), VALUES)
def test_a_value_is_of_the_type_its_tool_declares(key: str, value: str, meant: object) -> None:
    text = tags(**{key: value})
    parts = assert_same_in_every_split(make, text) if len(text) < 1000 else read(make(), text)
    [(name, arguments)] = calls(parts)
    assert (name, json.loads(arguments), visible(parts)) == ("f", {key: meant}, "")


ANSWERS: list[tuple[str, list[Part]]] = [
    ("", []),
    (" a < b \n <func <tool_call> </tool_call>\n", [" a < b \n <func <tool_call> </tool_call>\n"]),
    (tags(), call("{}")),
    (tags(s="x", i="5", o='{"a": 1}'), call('{"s": "x", "i": 5, "o": {"a": 1}}')),
    (f"Look.\n\n{tags(s='x')}\n\n", ["Look.", *call('{"s": "x"}')]),
    (f"{tags(s='x')}\n{tags(i='1')}\n then \n{tags()}", [*call('{"s": "x"}'), *call('{"i": 1}'), "then", *call("{}")]),
    ("<function=f><parameter=s>x</parameter></function>", call('{"s": "x"}')),
    ("<tool_call><function=g>\n<parameter=日本 >é</parameter>\n</tool_call>z", [*call('{"日本": "é"}', "g"), "z"]),
    ("<function=f>\n<function=g>\n</function> \n</tool_call>", [*call("{}"), *call("{}", "g")]),
    ("<function=f>\n<tool_call>\n<function=g>\n</function>", [*call("{}"), *call("{}", "g")]),
    # garbage
    ("<tool_call>\nfoo\n</tool_call> ", ["<tool_call>\nfoo\n</tool_call> "]),
    (" <function=\n> <function=> <function=a<b>", [" <function=\n> <function=> <function=a<b>"]),
    # between a call's parameters: no text of the answer, or protocols would show it inside the call
    ("<function=f>\n what \n<parameter=i>5</parameter> ever</function>\nso", [*call('{"i": 5}'), "so"]),
    ("<function=f><parameter=\n></function>", call("{}")),
    # cut off
    ("<tool_call>\n<function=f", ["<tool_call>\n<function=f"]),
    ("<function=f>\n<param", [ToolCall("f")]),
    ("<function=f>\n<parameter=s", [ToolCall("f")]),
    ("<function=f>\n<parameter=s>\nab", call('{"s": "ab')),
    ("<function=f>\n<parameter=i>\n12", call('{"i": 12')),
    ("<function=f>\n<parameter=i>\n12</parameter>", call('{"i": 12')),
    ("<function=f>\n<parameter=i>\n12</parameter></function>\n</tool_", call('{"i": 12}')),
]


@pytest.mark.parametrize(("text", "parts"), ANSWERS)
def test_an_answer_gives_the_same_parts_in_every_split(text: str, parts: list[Part]) -> None:
    assert assert_same_in_every_split(make, text) == parts


def test_text_streams_and_other_values_are_held_until_they_can_be_checked() -> None:
    parser = make()
    assert parser.push("<function=f>\n<parameter=s>\n") == [ToolCall("f"), Arguments('{"s": "')]
    assert parser.push('a"\n') == [Arguments('a\\"')]
    assert parser.held == 1
    assert parser.push("b</parameter>") == [Arguments("\\nb"), Arguments('"')]
    assert parser.push("<parameter=i>4") == [Arguments(', "i": ')]
    assert parser.held == 1
    assert parser.push("2\n</parameter>\n</function>") == [Arguments("42"), Arguments("}")]
    assert parser.held == 0


@relaxed
@given(st.dictionaries(st.text("abcé🙂", min_size=1), st.text(), max_size=4), st.lists(st.integers(0, 200), max_size=6))
def test_any_text_arrives_as_it_was_written(values: dict[str, str], places: list[int]) -> None:
    text = tags(**values)
    parts = read(make(), cut_at(text, places))
    assert parts == read(make(), [text])
    [(name, arguments)] = calls(parts)
    assert (name, json.loads(arguments)) == ("f", values)
