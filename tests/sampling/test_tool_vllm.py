"""vLLM's own parsers, where we have none: text streams, and what may be a call is read once, at the end."""

import warnings
from typing import Any

import pytest

from sampling import tools
from sampling.parts import Arguments, Part, Reasoning, ToolCall
from sampling.reasoning import ThinkParser, VllmReasoningParser, reasoning_parser_factory
from sampling.tools import tool_parser_factory
from tests.sampling.test_tool_splits import assert_same_in_every_split, read

TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]


@pytest.fixture(scope="module", autouse=True)
def vllm_is_imported() -> None:
    """Its imports warn of each other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import vllm.reasoning
        import vllm.tool_parsers  # noqa: F401


class AnyVocabulary(dict[str, int]):
    """Has every token."""

    def __contains__(self, token: object) -> bool:
        return True

    def __missing__(self, token: str) -> int:
        return 7

    def get(self, token: str, default: Any = None) -> Any:
        return 7


class FakeTokenizer:
    def get_vocab(self) -> dict[str, int]:
        return AnyVocabulary()

    @property
    def vocab(self) -> dict[str, int]:
        return self.get_vocab()

    def encode(self, text: str, **options: Any) -> list[int]:
        return [1]

    def decode(self, tokens: list[int], **options: Any) -> str:
        return "x"


def call(arguments: str) -> list[Part]:
    return [ToolCall("f"), Arguments(arguments)]


FORMATS = {
    "jamba": '<tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>',
    "glm45": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "internlm": '<|action_start|><|plugin|>{"name": "f", "parameters": {"a": 1}}<|action_end|>',
    "mistral": '[TOOL_CALLS]f{"a": 1}',
    "phi4_mini_json": 'functools[{"name": "f", "arguments": {"a": 1}}]',
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_is_read_at_the_end_and_the_text_before_it_at_once(name: str) -> None:
    make = tool_parser_factory(name, FakeTokenizer())
    text = f"Let me see.\n{FORMATS[name]}"
    assert assert_same_in_every_split(lambda: make(TOOLS), text) == ["Let me see.", *call('{"a": 1}')]
    parser = make(TOOLS)
    assert parser.push("Let me see.\n") == ["Let me see."]
    assert parser.push(FORMATS[name]) == []
    assert parser.held == len(FORMATS[name]) + 1


@pytest.mark.parametrize("name", ["jamba", "pythonic"])
def test_an_answer_without_calls_is_exact(name: str) -> None:
    make = tool_parser_factory(name, FakeTokenizer())
    for text in (" \n Hello <tool> there. \n", "<tool_calls>broken", ""):
        assert read(make(TOOLS), text) == ([text] if text else [])


def test_a_format_without_a_marker_is_held_to_the_end() -> None:
    parser = tool_parser_factory("pythonic", FakeTokenizer())(TOOLS)
    assert parser.push("[f(a=1), ") == []
    assert parser.push("f(a=2)]") == []
    assert parser.flush() == [*call('{"a": 1}'), *call('{"a": 2}')]


def test_a_fault_of_the_parser_leaves_text(monkeypatch: pytest.MonkeyPatch) -> None:
    make = tool_parser_factory("jamba", FakeTokenizer())

    def fail(name: str) -> Any:
        raise RuntimeError

    monkeypatch.setattr(tools, "_parser_class", fail)
    assert read(make(TOOLS), f"Hi\n{FORMATS['jamba']}\n") == [f"Hi\n{FORMATS['jamba']}\n"]


def test_special_tokens_are_asked_for_where_the_format_needs_them() -> None:
    assert tool_parser_factory("mistral", FakeTokenizer()).special_tokens
    assert not tool_parser_factory("pythonic", FakeTokenizer()).special_tokens


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown tool parser 'nope': known are .*hermes.*jamba"):
        tool_parser_factory("nope", FakeTokenizer())
    with pytest.raises(ValueError, match=r"unknown reasoning parser 'nope': known are .*granite.*think"):
        reasoning_parser_factory("nope", FakeTokenizer())


def test_a_parser_that_finds_its_tokens_missing_is_refused() -> None:
    with pytest.raises(ValueError, match="'jamba' does not fit"):
        tool_parser_factory("jamba", None)
    with pytest.raises(ValueError, match="'seed_oss' does not fit"):
        reasoning_parser_factory("seed_oss", None)


def test_what_is_only_a_name_in_vllm_is_unknown() -> None:
    with pytest.raises(ValueError, match="unknown tool parser 'openai'"):
        tool_parser_factory("openai", FakeTokenizer())
    with pytest.raises(ValueError, match="unknown reasoning parser 'openai_gptoss'"):
        reasoning_parser_factory("openai_gptoss", FakeTokenizer())


def test_text_that_a_format_marks_too_comes_out_unmarked() -> None:
    make = tool_parser_factory("kimi_k3", FakeTokenizer())
    assert read(make(TOOLS), "<|open|>response<|sep|>Hello.<|close|>response<|sep|>") == ["Hello."]


def test_reasoning_between_other_markers_streams() -> None:
    make = reasoning_parser_factory("seed_oss", FakeTokenizer())
    assert isinstance(make(False), ThinkParser)
    parts = assert_same_in_every_split(lambda: make(False), "<seed:think>a</think></seed:think>\nb")
    assert parts == [Reasoning("a</think>"), "b"]


def test_reasoning_without_markers_is_read_at_the_end() -> None:
    make = reasoning_parser_factory("granite", FakeTokenizer())
    assert isinstance(make(False), VllmReasoningParser)
    text = "Here is my thought process: a Here is my response: b"
    assert assert_same_in_every_split(lambda: make(False), text) == [Reasoning(" a "), " b"]
