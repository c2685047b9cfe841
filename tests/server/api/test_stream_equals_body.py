"""A stream's joined deltas and the answer in one body say the same: text, usage and finish reasons."""

from collections.abc import Callable
from typing import Any

import pytest

from server.request import FinishReason
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion
from tests.support.sse import DONE, finish_reasons, text_of
from tests.support.waiting import turns

Script = Callable[[list[FakeSequence]], None]
Result = tuple[list[str], list[str], int]


async def streamed(site: Served[FakeEngine], path: str, payload: dict[str, Any], play: Script, choices: int) -> Result:
    exchange = site.open(path, payload | {"stream": True, "stream_options": {"include_usage": True}})
    begun = len(site.engine.sequences)
    await site.engine.sequence(begun + choices - 1)
    play(site.engine.sequences[begun:])
    await exchange
    found = exchange.events
    assert found[-1] == DONE
    reasons = finish_reasons(found)
    texts = [text_of(found, index) for index in range(choices)]
    return texts, [reasons[index] for index in range(choices)], found[-2]["usage"]["completion_tokens"]


async def collected(site: Served[FakeEngine], path: str, payload: dict[str, Any], play: Script, choices: int) -> Result:
    exchange = site.open(path, payload)
    begun = len(site.engine.sequences)
    await site.engine.sequence(begun + choices - 1)
    play(site.engine.sequences[begun:])
    await exchange
    found = exchange.json["choices"]
    texts = [choice["text"] if "text" in choice else choice["message"]["content"] for choice in found]
    return texts, [choice["finish_reason"] for choice in found], exchange.json["usage"]["completion_tokens"]


def plain(sequences: list[FakeSequence]) -> None:
    for sequence in sequences:
        for text in ("The", " capital", " of France", " is Paris"):
            sequence.say(text)
        sequence.end()


def to_the_limit(sequences: list[FakeSequence]) -> None:
    for number, sequence in enumerate(sequences):
        sequence.say("a" * (number + 1))
        sequence.say(" last", finish=FinishReason.LENGTH)


def cut_emoji(sequences: list[FakeSequence]) -> None:
    for sequence in sequences:
        first, *_ = sequence._model.tokenizer.encode("🙂", add_special_tokens=False)
        sequence.say("so")
        sequence.push(first, finish=FinishReason.LENGTH)


def cut_emoji_before_the_end_token(sequences: list[FakeSequence]) -> None:
    for sequence in sequences:
        first, *_ = sequence._model.tokenizer.encode("🙂", add_special_tokens=False)
        sequence.push(first)
        sequence.end()


def split_emoji(sequences: list[FakeSequence]) -> None:
    for sequence in sequences:
        for token_id in sequence._model.tokenizer.encode("🙂 ok", add_special_tokens=False):
            sequence.push(token_id)
        sequence.end()


STOPPED_AT_PARIS: Result = (["The capital of France is "], ["stop"], 6)

CASES: dict[str, tuple[dict[str, Any], Script, Result]] = {
    "plain": ({}, plain, (["The capital of France is Paris"], ["stop"], 7)),
    "two choices": ({"n": 2}, to_the_limit, (["a last", "aa last"], ["length"] * 2, 4)),
    "a stop inside a delta": ({"stop": "Paris"}, plain, STOPPED_AT_PARIS),
    "a stop across deltas": ({"stop": ["e is Pa"]}, plain, (["The capital of Franc"], ["stop"], 6)),
    "a stop inside a delta of several tokens": ({"stop": " France"}, plain, (["The capital of"], ["stop"], 4)),
    "a stop that is shown": (
        {"stop": "Paris", "include_stop_str_in_output": True},
        plain,
        (["The capital of France is Paris"], ["stop"], 6),
    ),
    "a stop that only begins": ({"stop": "Paris is"}, plain, (["The capital of France is Paris"], ["stop"], 7)),
    "a stop too early to count": (
        {"stop": " capital", "min_tokens": 3},
        plain,
        (["The capital of France is Paris"], ["stop"], 7),
    ),
    "the first of two stops": ({"stop": ["Paris", "capital"]}, plain, (["The "], ["stop"], 2)),
    "an unfinished emoji": ({}, cut_emoji, (["so\ufffd"], ["length"], 2)),
    "an unfinished emoji with stops": ({"stop": "x"}, cut_emoji, (["so\ufffd"], ["length"], 2)),
    "an unfinished emoji, then the end token": ({}, cut_emoji_before_the_end_token, (["\ufffd"], ["stop"], 2)),
    "the same with stops": ({"stop": "x"}, cut_emoji_before_the_end_token, (["\ufffd"], ["stop"], 2)),
    "an emoji of two tokens": ({}, split_emoji, (["🙂 ok"], ["stop"], 4)),
}


@pytest.mark.parametrize(("path", "payload"), [(CHAT, chat()), (COMPLETIONS, completion())], ids=["chat", "text"])
@pytest.mark.parametrize("case", CASES)
async def test_a_stream_says_what_the_body_says(
    site: Served[FakeEngine], path: str, payload: dict[str, Any], case: str
) -> None:
    fields, play, expected = CASES[case]
    choices = len(expected[0])
    assert await streamed(site, path, payload | fields, play, choices) == expected
    assert await collected(site, path, payload | fields, play, choices) == expected


async def test_several_prompts_are_answered_in_their_order(site: Served[FakeEngine]) -> None:
    exchange = site.open(COMPLETIONS, completion(prompt=["one", "two"], n=2))
    await site.engine.sequence(3)
    prompts = [tuple(sequence.request.prompt_token_ids) for sequence in site.engine.sequences]
    assert prompts[0] == prompts[1] != prompts[2] == prompts[3]
    for index, sequence in reversed(list(enumerate(site.engine.sequences))):
        sequence.say(str(index), finish=FinishReason.LENGTH)
    await exchange
    assert [(c["index"], c["text"]) for c in exchange.json["choices"]] == [(i, str(i)) for i in range(4)]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_string_ends_its_choice_in_the_engine_at_once_and_no_other(
    site: Served[FakeEngine], stream: bool
) -> None:
    exchange = site.open(COMPLETIONS, completion(stream=stream, n=2, stop="."))
    await site.engine.sequence(1)
    first, second = site.engine.sequences
    first.say("Yes.")
    assert [first.aborted, second.aborted] == [True, False]
    first.say(" never shown")
    second.say("No")
    await turns()
    assert [first.aborted, second.aborted] == [True, False]
    second.say(" more.")
    await exchange
    assert [first.aborted, second.aborted] == [True, True]
    if stream:
        assert [text_of(exchange.events, index) for index in (0, 1)] == ["Yes", "No more"]
    else:
        assert [choice["text"] for choice in exchange.json["choices"]] == ["Yes", "No more"]


async def test_nothing_of_a_stop_string_is_shown_before_it_is_known_to_be_one(site: Served[FakeEngine]) -> None:
    exchange = site.open(COMPLETIONS, completion(stream=True, stop="is Paris"))
    sequence = await site.engine.sequence()
    shown = []
    for text in ("France", " is", " Pa", "int", " is", " Paris", "!"):
        sequence.say(text)
        await turns()
        shown.append(text_of(exchange.events))
    await exchange
    assert shown == [
        "France",
        "France ",
        "France ",
        "France is Paint",
        "France is Paint ",
        "France is Paint ",
        "France is Paint ",
    ]
