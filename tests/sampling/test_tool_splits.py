"""However an answer is cut, its parts are the same, and nothing of it is lost; the tests of each format read it so."""

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sampling.parts import Arguments, Parser, Part, Reasoning, ToolCall
from sampling.tools import CallArrayParser, HermesParser, Llama3JsonParser, Qwen3XmlParser

Make = Callable[[], Parser]

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(parser: Parser, pieces: Iterable[str]) -> list[Part]:
    """The parts, joined where they are of one kind; what every parser promises of `held` and of its parts holds."""
    parts: list[Part] = []
    for piece in pieces:
        before = parser.held
        parts += parser.push(piece)
        assert 0 <= parser.held <= before + len(piece)
    parts += parser.flush()
    assert parser.held == 0
    assert parser.flush() == []
    for part in parts:
        assert part if isinstance(part, str) else (part.name if isinstance(part, ToolCall) else part.text)
    return joined(parts)


def joined(parts: Sequence[Part]) -> list[Part]:
    whole: list[Part] = []
    for kind, group in groupby(parts, type):
        if kind is ToolCall:
            whole += group
        elif kind is str:
            whole.append("".join(str(part) for part in group))
        else:
            text = "".join(part.text for part in group if isinstance(part, Arguments | Reasoning))
            whole.append(Reasoning(text) if kind is Reasoning else Arguments(text))
    return whole


def random_pieces(text: str, seed: int) -> list[str]:
    """Cut at random, with empty pieces among them."""
    dice = random.Random(seed)
    return cut_at(text, [dice.randrange(len(text) + 1) for _ in range(dice.randrange(1, 12))])


def assert_same_in_every_split(make: Make, text: str) -> list[Part]:
    whole = read(make(), [text])
    assert read(make(), text) == whole
    for cut in range(len(text) + 1):
        assert read(make(), [text[:cut], text[cut:]]) == whole, (text[:cut], text[cut:])
    for seed in range(20):
        pieces = random_pieces(text, seed)
        assert read(make(), pieces) == whole, pieces
    return whole


def visible(parts: Sequence[Part]) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def calls(parts: Sequence[Part]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, ToolCall):
            found.append((part.name, ""))
        elif isinstance(part, Arguments):
            found[-1] = (found[-1][0], found[-1][1] + part.text)
    return found


def cut_at(text: str, places: list[int]) -> list[str]:
    cuts = sorted(place % (len(text) + 1) for place in places)
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


XML_TOOLS = [{"name": "f", "parameters": {"properties": {"i": {"type": "integer"}}}}]
PARSERS: dict[str, Make] = {
    "hermes": HermesParser,
    "llama3": Llama3JsonParser,
    "array": CallArrayParser,
    "xml": lambda: Qwen3XmlParser(XML_TOOLS),
}
# Scraps that make calls, nearly make them, and break them off.
JSON_SCRAPS = (
    *(
        "<tool_call>",
        "</tool_call>",
        "<tool",
        "</",
        '{"name": "f"',
        '"arguments": ',
        '{"name":"f","arguments":{',
        "}",
        "{",
    ),
    *(
        "[",
        "]",
        ",",
        ":",
        ";",
        '"',
        "\\",
        "\\u",
        "d83d",
        "\\ude42",
        '"name"',
        " ",
        "\n",
        "a",
        "🙂",
        "1",
        "null",
        "-",
        "!",
    ),
    *(
        "<|python_tag|>",
        "<|py",
        '"parameters"',
        '"f"',
        '{"name":"g"}',
        ', "arguments": "',
        '"{\\"x\\": 1}"',
        '[{"name":"f"',
    ),
)
XML_SCRAPS = (
    *(
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "f>",
        "<function=f>",
        "<parameter=",
        "i>",
        "<parameter=s>",
        "</",
        "a",
    ),
    *(
        "</parameter>",
        "</function>",
        "\n",
        " ",
        "5",
        '"',
        "<",
        ">",
        "🙂",
        "</param",
        "<parameter=i>\n",
        "\n</parameter>\n",
    ),
)
SCRAPS = st.lists(st.sampled_from(JSON_SCRAPS), max_size=16) | st.lists(st.sampled_from(XML_SCRAPS), max_size=16)
SEEDS = st.lists(st.integers(0, 200), max_size=8)


@pytest.mark.parametrize("name", PARSERS)
@relaxed
@given(SCRAPS, SEEDS)
def test_any_scraps_give_the_same_parts_in_any_split(name: str, scraps: list[str], places: list[int]) -> None:
    make, text = PARSERS[name], "".join(scraps)
    whole = read(make(), [text])
    for split in (scraps, list(text), cut_at(text, places)):
        assert read(make(), split) == whole


@pytest.mark.parametrize("name", PARSERS)
@relaxed
@given(SCRAPS)
def test_an_answer_without_calls_is_either_shown_or_held_to_the_last_character(name: str, scraps: list[str]) -> None:
    if calls(read(PARSERS[name](), scraps)):
        return
    parser, text, shown = PARSERS[name](), "", ""
    for scrap in scraps:
        text += scrap
        shown += visible(parser.push(scrap))
        assert shown + text[len(text) - parser.held :] == text
    assert shown + visible(parser.flush()) == text


@pytest.mark.parametrize("name", PARSERS)
@relaxed
@given(SCRAPS)
def test_nothing_is_held_once_a_call_streams(name: str, scraps: list[str]) -> None:
    """But a few characters: what may become a marker or is the first half of an escape."""
    parser = PARSERS[name]()
    for scrap in scraps:
        parts = parser.push(scrap)
        if parts and isinstance(parts[-1], Arguments) and name != "xml":
            assert parser.held < 12
