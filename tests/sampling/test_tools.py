"""Calls of tools are told apart from text as they come, however the text is cut."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sampling.parts import Arguments, Part, ToolCall
from sampling.tools import (
    TOOL_PARSERS,
    CallArrayParser,
    HermesParser,
    Llama3JsonParser,
    NamedCallParser,
    tool_parser_factory,
)
from tests.sampling.test_tool_splits import Make, assert_same_in_every_split, calls, cut_at, read, visible

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def call(name: str, arguments: str) -> list[Part]:
    return [ToolCall(name), Arguments(arguments)]


NESTED = '{"a": {"b": ["}", "{", "\\"]", {"c": "\\\\"}]}, "d": "</tool_call> <tool_call>\\n", "e": -1.5e3}'
FOREIGN = '{"q": "日本語 🙂 é \\u00e9 \\ud83d\\ude42", "п": "👩‍👩‍👧"}'


def block(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


HERMES: list[tuple[str, list[Part]]] = [
    ("", []),
    (" \n Just text. \n", [" \n Just text. \n"]),
    ("a < b, <tool, </tool_call> <tool_cal", ["a < b, <tool, </tool_call> <tool_cal"]),
    (block('{"name": "f", "arguments": {"a": 1}}'), call("f", '{"a": 1}')),
    ('<tool_call>{"name":"f","arguments":{}}</tool_call>', call("f", "{}")),
    (block('{"name": "f", "parameters": {"a": 1}}'), call("f", '{"a": 1}')),
    (block('{"arguments": {"a": [1, 2]}, "name": "f"}'), call("f", '{"a": [1, 2]}')),
    (block('{"arguments": {"a": 1}, "id": 7, "name": "f", "x": [{"y": null}], "z": true}'), call("f", '{"a": 1}')),
    (block(f'{{"name": "f", "arguments": {NESTED}}}'), call("f", NESTED)),
    (block(f'{{"name": "поиск🙂", "arguments": {FOREIGN}}}'), call("поиск🙂", FOREIGN)),
    (block(f'{{"arguments": {json.dumps(NESTED)}, "name": "f"}}'), call("f", NESTED)),
    (block(f'{{"name": "f", "arguments": {json.dumps(FOREIGN)}}}'), call("f", FOREIGN)),
    (block('{"name": "f", "arguments": "{\\"a\\": \\"\\ud83d\\ude42\\"}"}'), call("f", '{"a": "🙂"}')),
    (block('{"name": "f"}'), call("f", "{}")),
    (block('{"name": "f", "arguments": null}'), call("f", "{}")),
    (block('{"name": "f", "arguments": ""}'), call("f", "{}")),
    (block('{"name": "f\\u00e9\\n", "arguments": {}}'), call("fé\n", "{}")),
    (block('{"name": "f", "name": "g", "arguments": {"a": 1}, "parameters": {"b": 2}}'), call("f", '{"a": 1}')),
    (block('{"name": "f", "arguments": {"a": 1},}'), call("f", '{"a": 1}')),
    (
        f"Look: \n\n{block(json.dumps({'name': 'f', 'arguments': {}}))}\n \n and then\n\n",
        ["Look:", *call("f", "{}"), "and then\n\n"],
    ),
    (
        "\n".join(block(f'{{"name": "{name}", "arguments": {{"n": {n}}}}}') for n, name in enumerate("fgh")) + "\n\n",
        [*call("f", '{"n": 0}'), *call("g", '{"n": 1}'), *call("h", '{"n": 2}')],
    ),
    (
        f"{block(json.dumps({'name': 'f'}))}\n between \n{block(json.dumps({'name': 'g'}))}",
        [*call("f", "{}"), "between", *call("g", "{}")],
    ),
    # cut off or not closed
    ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}', call("f", '{"a": 1}')),
    ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_c', call("f", '{"a": 1}')),
    ('<tool_call>\n{"name": "f", "arguments": {"a": 1', call("f", '{"a": 1')),
    ('x\n<tool_call>\n{"name": "f", "argum', ['x\n<tool_call>\n{"name": "f", "argum']),
    (
        '<tool_call>{"name": "f"}\n<tool_call>{"name": "g"}\n</tool_call>',
        [*call("f", "{}"), *call("g", "{}")],
    ),
    ('<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call> z', [*call("f", '{"a": 1}'), "z"]),
    ('<tool_call>{"name": "f", "arguments": {}}}}\n</tool_call>\nz', [*call("f", "{}"), "}}z"]),
    # malformed
    (block("no JSON"), [block("no JSON")]),
    (" " + block('{"name": 5, "arguments": {}}') + " ", [" " + block('{"name": 5, "arguments": {}}') + " "]),
    (block('{"name": "", "arguments": {}}'), [block('{"name": "", "arguments": {}}')]),
    (block('{"arguments": {"a": 1}}'), [block('{"arguments": {"a": 1}}')]),
    (block("[1, 2]"), [block("[1, 2]")]),
    (block('{"name" "f"}'), [block('{"name" "f"}')]),
    (block('{"name": "f" "arguments": {}}'), [block('{"name": "f" "arguments": {}}')]),
    (f"<tool_call>\n{block(json.dumps({'name': 'f'}))}", ["<tool_call>", *call("f", "{}")]),
    (f"{block('?')}\n{block(json.dumps({'name': 'f'}))}", [block("?"), *call("f", "{}")]),
    (
        block('{"name": "f", "arguments": "\\ud83d!\\ud83d\\u0041 \\x \\u12G"}'),
        call("f", "\N{REPLACEMENT CHARACTER}!\N{REPLACEMENT CHARACTER}A \\x \\u12G"),
    ),
]

LLAMA3: list[tuple[str, list[Part]]] = [
    ("", []),
    (" \n Hi {there}. \n", [" \n Hi {there}. \n"]),
    ('{"name": "f", "parameters": {"a": 1}}', call("f", '{"a": 1}')),
    (' \n{"name": "f", "arguments": {"a": 1}} \n', call("f", '{"a": 1}')),
    (f'<|python_tag|>{{"name": "f", "parameters": {NESTED}}}', call("f", NESTED)),
    (f'\n<|python_tag|> {{"type": "function", "name": "f", "parameters": {FOREIGN}}}', call("f", FOREIGN)),
    ('{"parameters": {"a": 1}, "name": "f"}', call("f", '{"a": 1}')),
    (
        '{"name": "f", "parameters": {"a": ";"}} ; {"name": "g", "parameters": {}};<|python_tag|>{"name": "h", '
        '"parameters": {}}',
        [*call("f", '{"a": ";"}'), *call("g", "{}"), *call("h", "{}")],
    ),
    ('{"name": "f", "parameters": {}}\n{"name": "g", "parameters": {}}', [*call("f", "{}"), *call("g", "{}")]),
    ('{"name": "f", "parameters": {}}; ', call("f", "{}")),
    ('{"name": "f", "parameters": {}}\n\nDone. ', [*call("f", "{}"), "Done. "]),
    ('{"name": "f", "parameters": {}}; {"a": 1} ', [*call("f", "{}"), '; {"a": 1} ']),
    ('{"name": "f", "parameters": {"a": "cut', call("f", '{"a": "cut')),
    ('{"age": 5, "name": "Anna"}\n', ['{"age": 5, "name": "Anna"}\n']),
    ('{"name": "Anna", "age": 5}\n', ['{"name": "Anna", "age": 5}\n']),
    ('{"name": "f"', ['{"name": "f"']),
    (" {} ", [" {} "]),
    (" { not JSON", [" { not JSON"]),
    ("<|python_tag|>print(1)", ["<|python_tag|>print(1)"]),
    (" <|python", [" <|python"]),
    (' Call: {"name": "f", "parameters": {}}', [' Call: {"name": "f", "parameters": {}}']),
]

ARRAY: list[tuple[str, list[Part]]] = [
    ("", []),
    ('[{"name": "f", "parameters": {"a": 1}}]', call("f", '{"a": 1}')),
    (
        f' [ {{"name": "f", "parameters": {NESTED}}} ,\n {{"parameters": {FOREIGN}, "name": "g"}} ]\n',
        [*call("f", NESTED), *call("g", FOREIGN)],
    ),
    ('[{"name": "f", "parameters": {"a": 1', call("f", '{"a": 1')),
    ('[{"name": "f", "parameters": {}}, ', call("f", "{}")),
    ('[{"name": "f", "parameters": {}}] garbage', [*call("f", "{}"), "garbage"]),
    ('[{"name": "f", "parameters": {}}; {}]', [*call("f", "{}"), "; {}]"]),
    (" Hello. ", [" Hello. "]),
    ("[1, 2]", ["[1, 2]"]),
    ('[{"name": 1}]', ['[{"name": 1}]']),
]

FORMATS: list[tuple[Make, list[tuple[str, list[Part]]]]] = [
    (HermesParser, HERMES),
    (Llama3JsonParser, LLAMA3),
    (CallArrayParser, ARRAY),
]
SAMPLES = [pytest.param(make, text, parts) for make, samples in FORMATS for text, parts in samples]


@pytest.mark.parametrize(("make", "text", "parts"), SAMPLES)
def test_an_answer_gives_the_same_parts_in_every_split(make: Make, text: str, parts: list[Part]) -> None:
    assert assert_same_in_every_split(make, text) == parts


@pytest.mark.parametrize(("make", "text", "parts"), SAMPLES)
def test_an_answer_cut_off_anywhere_gives_a_beginning_of_its_calls(make: Make, text: str, parts: list[Part]) -> None:
    complete = calls(parts)
    for end in range(len(text)):
        cut = read(make(), [text[:end]])
        assert read(make(), text[:end]) == cut
        for (name, arguments), (whole_name, whole_arguments) in zip(calls(cut), complete, strict=False):
            assert name == whole_name
            assert whole_arguments.startswith(arguments)


@pytest.mark.parametrize("make", [make for make, _ in FORMATS])
def test_what_is_no_call_is_text_and_no_call_is_shown(make: Make) -> None:
    assert visible(read(make(), ["{[<tool_call>{["])) == "{[<tool_call>{["


def test_the_arguments_stream_as_they_come() -> None:
    parser = HermesParser()
    assert parser.push('Yes.\n<tool_call>\n{"name": "f", "arguments": ') == ["Yes."]
    assert parser.push('{"a": ') == [ToolCall("f"), Arguments('{"a": ')]
    assert parser.held == 0
    assert parser.push('"b') == [Arguments('"b')]
    assert parser.push('"}') == [Arguments('"}')]
    assert parser.push("}\n</tool_call>") == []
    assert parser.held == 0


def test_what_is_no_call_is_let_go_at_once() -> None:
    parser = HermesParser()
    assert parser.push("a \n<tool_call>\n{") == ["a"]
    assert parser.held == len(" \n<tool_call>\n{")
    assert parser.push("5") == [" \n<tool_call>\n{", "5"]
    assert parser.held == 0


def test_a_plain_answer_is_let_go_as_soon_as_it_shows() -> None:
    parser = Llama3JsonParser()
    assert parser.push(' {"answer"') == [' {"answer"']
    assert parser.held == 0
    assert parser.push(": 5 \n") == [": 5 \n"]


def test_the_call_of_a_named_tool_is_all_there_is() -> None:
    assert assert_same_in_every_split(lambda: NamedCallParser("f"), ' {"a": 1}\n') == call("f", ' {"a": 1}\n')
    assert read(NamedCallParser("f"), ["", ""]) == []


def test_no_nesting_is_too_deep() -> None:
    deep = '{"a":' * 50_000 + "1" + "}" * 50_000
    assert read(HermesParser(), [block(f'{{"name": "f", "arguments": {deep}}}')]) == call("f", deep)
    assert read(HermesParser(), [block(f'{{"x": {deep}, "name": "f"}}')]) == call("f", "{}")


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=3)
NAMES = st.text(min_size=1, max_size=8)
SEEDS = st.lists(st.integers(0, 200), max_size=8)


@relaxed
@given(st.lists(st.tuples(NAMES, OBJECTS), min_size=1, max_size=3), st.booleans(), st.booleans(), SEEDS)
def test_any_calls_come_out_as_they_were_written(
    made: list[tuple[str, dict[str, Any]]], ascii_only: bool, name_first: bool, places: list[int]
) -> None:
    expected = [(name, json.dumps(arguments, ensure_ascii=ascii_only)) for name, arguments in made]
    objects = []
    for name, arguments in expected:
        fields = [f'"name": {json.dumps(name, ensure_ascii=ascii_only)}', f'"parameters": {arguments}']
        objects.append(f"{{{', '.join(fields if name_first else fields[::-1])}}}")
    answers: list[tuple[Make, str]] = [
        (HermesParser, "\n".join(map(block, objects))),
        (Llama3JsonParser, "; ".join(objects)),
        (CallArrayParser, f"[{', '.join(objects)}]"),
    ]
    for make, text in answers:
        parts = read(make(), cut_at(text, places))
        assert (calls(parts), visible(parts)) == (expected, "")
        assert read(make(), text) == parts


@pytest.mark.parametrize("name", sorted(TOOL_PARSERS))
def test_a_factory_makes_the_parser_of_an_answer(name: str) -> None:
    factory = tool_parser_factory(name, None)
    assert factory.special_tokens == name.startswith("llama")
    assert read(factory([]), [" no call "]) == [" no call "]
