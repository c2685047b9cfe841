"""Thinking is told apart from the answer, however the text is cut."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sampling.parts import Part, Reasoning
from sampling.reasoning import ThinkParser, reasoning_parser_factory
from tests.sampling.test_tool_splits import assert_same_in_every_split, read

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

OUTSIDE: list[tuple[str, list[Part]]] = [
    ("", []),
    ("  \n", ["  \n"]),
    ("Hi there.\n", ["Hi there.\n"]),
    (" \n Hi <think>x</think>", [" \n Hi <think>x</think>"]),
    ("<think>\nWell,\n\nyes.\n</think>\n\nYes. ", [Reasoning("Well,\n\nyes."), "Yes. "]),
    ("\n<think>a</think>b", [Reasoning("a"), "b"]),
    ("<think></think>b", ["b"]),
    ("<think>\n\n</think>\n\nb", ["b"]),
    ("<think>a</think>", [Reasoning("a")]),
    ("<think>a</think>\n \n", [Reasoning("a")]),
    ("<think>a</think>b<think>c</think>", [Reasoning("a"), "b<think>c</think>"]),
    ("<think>a<think>b</think>c", [Reasoning("a<think>b"), "c"]),
    ("<think>日本語 🙂 é \n\n</think>\nПривет 👩‍👩‍👧", [Reasoning("日本語 🙂 é"), "Привет 👩‍👩‍👧"]),
    ("<think>cut off \n", [Reasoning("cut off \n")]),
    ("<think>cut </thi", [Reasoning("cut </thi")]),
    ("<think>a </thi b </think>c", [Reasoning("a </thi b"), "c"]),
    ("<think>a < b </ c </</think>d", [Reasoning("a < b </ c </"), "d"]),
    ("\n<thin", ["\n<thin"]),
    ("\n<thing>a", ["\n<thing>a"]),
    ("<thi<think>a</think>", ["<thi<think>a</think>"]),
]

INSIDE: list[tuple[str, list[Part]]] = [
    ("", []),
    ("\n\n", []),
    ("\nLet me see.\n</think>\n\nYes.", [Reasoning("Let me see."), "Yes."]),
    ("</think>Yes.", ["Yes."]),
    ("<think>\na</think>b", [Reasoning("a"), "b"]),
    ("\n <think> a</think>b", [Reasoning("a"), "b"]),
    ("a <think>b</think>c", [Reasoning("a <think>b"), "c"]),
    ("never done \n", [Reasoning("never done \n")]),
    (" <thin", [Reasoning("<thin")]),
    ("a</think>b</think>", [Reasoning("a"), "b</think>"]),
]


@pytest.mark.parametrize(("text", "parts"), OUTSIDE)
def test_thinking_begins_only_where_the_output_does(text: str, parts: list[Part]) -> None:
    assert assert_same_in_every_split(ThinkParser, text) == parts


@pytest.mark.parametrize(("text", "parts"), INSIDE)
def test_thinking_may_have_begun_in_the_prompt(text: str, parts: list[Part]) -> None:
    assert assert_same_in_every_split(lambda: ThinkParser(inside=True), text) == parts


def test_other_markers_delimit_thinking_as_well() -> None:
    text = " [THINK] a < [/TH </think> [/THINK] b"
    parts = assert_same_in_every_split(lambda: ThinkParser(markers=("[THINK]", "[/THINK]")), text)
    assert parts == [Reasoning("a < [/TH </think>"), "b"]


def test_only_what_may_be_a_marker_or_whitespace_before_it_is_held() -> None:
    parser = ThinkParser()
    held = []
    for piece in (" ", "<thi", "nk>", "\n", "Well", " \n", "</th", "e", "</think>", "\n", "Yes \n"):
        parser.push(piece)
        held.append(parser.held)
    assert held == [1, 5, 0, 0, 0, 2, 6, 0, 0, 0, 0]


ALPHABET = st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", "<", ">", " ", "\n", "a", "é🙂", "</think"])


@relaxed
@given(st.lists(ALPHABET, max_size=14), st.booleans())
def test_any_text_gives_the_same_parts_in_any_split_and_no_marker_shows_in_a_thought(
    pieces: list[str], inside: bool
) -> None:
    text = "".join(pieces)
    whole = read(ThinkParser(inside=inside), [text])
    for split in (pieces, list(text)):
        assert read(ThinkParser(inside=inside), split) == whole
    assert not any(isinstance(part, Reasoning) and "</think>" in part.text for part in whole)


@relaxed
@given(st.lists(ALPHABET, max_size=14))
def test_text_that_does_not_begin_with_thinking_is_passed_on_exactly(pieces: list[str]) -> None:
    text = "".join(pieces)
    if not text.lstrip(" \n").startswith("<think>"):
        assert read(ThinkParser(), pieces) == ([text] if text else [])


@pytest.mark.parametrize("name", ["think", "qwen3", "deepseek_r1", "deepseek_v3"])
def test_a_factory_makes_the_parser_of_an_answer(name: str) -> None:
    factory = reasoning_parser_factory(name, None)
    assert not factory.special_tokens
    assert read(factory(True), ["a</think>b"]) == [Reasoning("a"), "b"]
    assert read(factory(False), ["a</think>b"]) == ["a</think>b"]
