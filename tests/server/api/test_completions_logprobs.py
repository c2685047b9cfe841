"""Completions: what they echo, their log probabilities, and where in the text each token stands."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from sampling.logprobs import LOWEST, TokenLogprob
from server.engine.protocol import ModelInfo
from server.request import FinishReason
from tests.conformance.replay import logprob_of
from tests.server.api.test_chat_messages import Recorder, submitted
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.site import COMPLETIONS, Served, completion, serving
from tests.support.sse import DONE, text_of
from tests.support.waiting import turns, until

STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
NAMES = ("text_offset", "tokens", "token_logprobs", "top_logprobs")
PROMPTS = ["Say it:", "The capital of France is", "<|im_start|>user\nHi"]
ANSWER = " Paris, of course."


def encode(site: Served[FakeEngine], text: str) -> list[int]:
    return site.engine.model.tokenizer.encode(text, add_special_tokens=False)


async def play(
    site: Served[FakeEngine], choices: int, answer: str = ANSWER, *, alternatives: int | None = None
) -> None:
    """Each choice says `answer`, token by token and in turn, and is cut by the token limit."""
    await site.engine.sequence(choices - 1)
    ids = encode(site, answer)
    for position, token_id in enumerate(ids):
        for sequence in site.engine.sequences:
            params, prompt = sequence.request.params, sequence.request.prompt_token_ids
            top = params.prompt_logprobs
            entries = None if top is None or position else [None, *(logprob_of(other, top) for other in prompt[1:])]
            logprobs = None if alternatives is None else [logprob_of(token_id, alternatives)]
            finish = FinishReason.LENGTH if position == len(ids) - 1 else None
            sequence.push(token_id, logprobs=logprobs, prompt_logprobs=entries, finish=finish)
        await turns(3)


def joined(exchange: Exchange, stream: bool) -> dict[int, tuple[str, dict[str, list[Any]]]]:
    """Text and log probabilities of each choice."""
    found: dict[int, tuple[str, dict[str, list[Any]]]] = {}
    for event in exchange.events[:-1] if stream else [exchange.json]:
        for choice in event["choices"]:
            text, lists = found.get(choice["index"], ("", {name: [] for name in NAMES}))
            if choice["logprobs"] is not None:
                assert set(choice["logprobs"]) == set(NAMES)
                lists = {name: lists[name] + choice["logprobs"][name] for name in NAMES}
            found[choice["index"]] = (text + choice["text"], lists)
    return found


def check_offsets(text: str, lists: dict[str, list[Any]]) -> None:
    """Where a token of whole characters is said to stand, there it stands."""
    assert len({len(lists[name]) for name in NAMES}) == 1
    assert lists["text_offset"] == sorted(lists["text_offset"])
    for offset, token in zip(lists["text_offset"], lists["tokens"], strict=True):
        if "\ufffd" not in token:
            assert text[offset:].startswith(token), (offset, token)
        else:
            assert offset <= len(text)


@pytest.mark.parametrize(
    ("echo", "logprobs", "stream", "several", "n"),
    list(product([True, False], [None, 0, 2], [True, False], [True, False], [1, 2])),
)
async def test_echo_and_log_probabilities_of_any_prompts_and_choices(
    site: Served[FakeEngine], echo: bool, logprobs: int | None, stream: bool, several: bool, n: int
) -> None:
    prompts = PROMPTS if several else PROMPTS[1:2]
    asked = completion(prompt=prompts if several else prompts[0], echo=echo, logprobs=logprobs, stream=stream, n=n)
    exchange = site.open(COMPLETIONS, asked)
    await play(site, len(prompts) * n, alternatives=logprobs)
    await exchange
    assert exchange.status == 200
    found = joined(exchange, stream)
    assert sorted(found) == list(range(len(prompts) * n))
    for index, (text, lists) in found.items():
        prompt = prompts[index // n]
        assert text == (prompt if echo else "") + ANSWER
        ids = [*(encode(site, prompt) if echo else ()), *encode(site, ANSWER)]
        if logprobs is None:
            assert lists["tokens"] == []
            continue
        assert "".join(lists["tokens"]) == text
        check_offsets(text, lists)
        expected = [-1 / (token_id + 1) for token_id in ids]
        assert lists["token_logprobs"] == ([None, *expected[1:]] if echo else expected)
        assert (lists["top_logprobs"][0] is None) is echo
        assert all(len(top) == max(logprobs, 1) for top in lists["top_logprobs"] if top is not None)


@STREAM
@pytest.mark.parametrize("echo", [True, False])
@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Say 🫠 龜 once more:", " ok 🫠 then 龜 done"),
        ("plain words", " 👩‍👩‍👧 🇫🇷 e\u0301, done"),
        ("\u2028é\n\n", "ÿ"),
    ],
    ids=["in both", "in the answer", "no token splits"],
)
async def test_offsets_stay_right_behind_characters_of_several_tokens(
    site: Served[FakeEngine], prompt: str, answer: str, echo: bool, stream: bool
) -> None:
    exchange = site.open(COMPLETIONS, completion(prompt=prompt, echo=echo, logprobs=0, stream=stream))
    await play(site, 1, answer, alternatives=0)
    ((text, lists),) = joined(await exchange, stream).values()
    assert text == (prompt if echo else "") + answer
    check_offsets(text, lists)


@STREAM
async def test_log_probabilities_end_where_a_stop_string_begins(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(COMPLETIONS, completion(logprobs=1, stream=stream, stop=", of"))
    await play(site, 1, alternatives=1)
    ((text, lists),) = joined(await exchange, stream).values()
    assert (text, lists["tokens"]) == (" Paris", [" Paris"])


@STREAM
async def test_an_impossible_token_is_a_number_and_not_a_failure(site: Served[FakeEngine], stream: bool) -> None:
    """Seen as a 500: out of range float values are not JSON compliant."""
    exchange = site.open(COMPLETIONS, completion(prompt=[504, 505], echo=True, logprobs=1, stream=stream))
    entry = TokenLogprob(504, LOWEST, 49152, ((505, LOWEST),))
    sequence = await site.engine.sequence()
    sequence.push(504, logprobs=[entry], prompt_logprobs=[None, entry], finish=FinishReason.LENGTH)
    ((_, lists),) = joined(await exchange, stream).values()
    assert exchange.status == 200
    assert lists["token_logprobs"] == [None, -9999.0, -9999.0]


@STREAM
async def test_an_echo_alone_is_the_prompt_and_then_the_answer(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(COMPLETIONS, completion(prompt="Hi", echo=True, stream=stream))
    (await site.engine.sequence()).end()
    await exchange
    assert text_of(exchange.events if stream else [exchange.json]) == "Hi"


async def test_the_prompt_is_echoed_in_the_first_chunk_only(site: Served[FakeEngine]) -> None:
    exchange = site.open(COMPLETIONS, completion(prompt=["Hi", "Ho"], echo=True, stream=True))
    second = await site.engine.sequence(1)
    first = site.engine.sequences[0]
    for sequence in (first, second):
        written = len(exchange.writes)
        sequence.say(" a")
        await until(lambda written=written: len(exchange.writes) > written)  # type: ignore[misc]
        sequence.say(" b")
        sequence.end()
    texts = [(c["index"], c["text"]) for event in (await exchange).events[:-1] for c in event["choices"]]
    assert [text for text in texts if text[1]] == [(0, "Hi a"), (0, " b"), (1, "Ho a"), (1, " b")]


async def test_log_probabilities_of_the_prompt_are_as_many_as_the_larger_wish(site: Served[FakeEngine]) -> None:
    fields: list[tuple[dict[str, Any], tuple[int | None, int | None]]] = [
        ({}, (None, None)),
        ({"echo": True}, (None, None)),
        ({"logprobs": 2}, (2, None)),
        ({"echo": True, "logprobs": 2}, (2, 2)),
        ({"prompt_logprobs": 3}, (None, 3)),
        ({"prompt_logprobs": 3, "echo": True}, (None, 3)),
        ({"prompt_logprobs": 3, "echo": True, "logprobs": 1}, (1, 3)),
    ]
    for given, expected in fields:
        params = (await submitted(site, completion(**given), COMPLETIONS)).params
        assert (params.logprobs, params.prompt_logprobs) == expected, given


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logprobs", -1),
        ("logprobs", 21),
        ("logprobs", True),
        ("logprobs", 1.0),
        ("logprobs", "1"),
        ("echo", 1),
        ("echo", "true"),
        ("best_of", 0),
        ("best_of", "1"),
    ],
)
async def test_a_wrong_value_is_named(site: Served[FakeEngine], field: str, value: Any) -> None:
    answer = await site.post(COMPLETIONS, completion(**{field: value}))
    assert (answer.status, answer.error["param"]) == (400, field)


@pytest.mark.parametrize("field", ["logprobs", "echo", "best_of"])
async def test_null_is_the_default(site: Served[FakeEngine], field: str) -> None:
    plain = await submitted(site, completion(), COMPLETIONS)
    assert (await submitted(site, completion(**{field: None}), COMPLETIONS)).params == plain.params


# ---- what a stream shows, and when


async def test_a_prompt_that_ends_within_a_character_is_never_told_again(site: Served[FakeEngine]) -> None:
    """Seen as a first delta with the whole prompt, which ended in two of an emoji's tokens."""
    *begun, last = encode(site, "Hello world 🌶")
    exchange = site.open(COMPLETIONS, completion(prompt=begun, stream=True))
    sequence = await site.engine.sequence()
    sequence.push(last)
    sequence.say(" hot")
    sequence.end()
    text = text_of((await exchange).events)
    assert "Hello" not in text
    assert text == "🌶 hot"


@pytest.mark.parametrize("text", ["한국어로 대답하겠습니다. 뷁쀍", "🫠🥹龦 漢字", "e\u0301👩‍👩‍👧‍👦🏳️‍🌈"])
async def test_a_stream_of_rare_characters_has_no_replacement_character(site: Served[FakeEngine], text: str) -> None:
    """Seen as syllables that became U+FFFD in streams."""
    exchange = site.open(COMPLETIONS, completion(stream=True))
    await play(site, 1, text)
    shown = text_of((await exchange).events)
    assert shown.count("\ufffd") == 0
    assert shown == text


@STREAM
async def test_nothing_of_a_stop_string_leaks_before_it(site: Served[FakeEngine], stream: bool) -> None:
    """Seen as `DEF`, `G` and `HI` before the stop `DEFGHIJ` was found."""
    exchange = site.open(COMPLETIONS, completion(stream=stream, stop=["DEFGHIJ"]))
    sequence = await site.engine.sequence()
    for text in (" ABC", "DEF", "G", "HI", "JKL"):
        sequence.say(text)
    await exchange
    event = exchange.events[-2] if stream else exchange.json
    assert text_of(exchange.events if stream else [event]) == " ABC"
    assert event["choices"][0]["finish_reason"] == "stop"


async def test_a_stop_string_that_never_comes_holds_nothing_back(site: Served[FakeEngine]) -> None:
    """Seen as empty first chunks, as many as the stop string was long."""
    exchange = site.open(COMPLETIONS, completion(stream=True, stop=["|" * 64, "never" * 12]))
    sequence = await site.engine.sequence()
    shown = []
    for text in ("Well", ",", " it", " is"):
        written = len(exchange.writes)
        sequence.say(text)
        await until(lambda written=written: len(exchange.writes) > written)  # type: ignore[misc]
        shown.append(text_of(exchange.events))
    sequence.end()
    await exchange
    assert shown == ["Well", "Well,", "Well, it", "Well, it is"]
    chunks = [event["choices"][0] for event in exchange.events if event != DONE]
    assert all(chunk["text"] for chunk in chunks[:-1])


@STREAM
@pytest.mark.parametrize(("include", "text"), [(False, "1 2 3 4 5 6 "), (True, "1 2 3 4 5 6 7")])
async def test_a_stop_string_is_shown_only_when_asked_for(
    site: Served[FakeEngine], stream: bool, include: bool, text: str
) -> None:
    """Seen as a stop string in the output."""
    exchange = site.open(COMPLETIONS, completion(stream=stream, stop=["7"], include_stop_str_in_output=include))
    await play(site, 1, "1 2 3 4 5 6 7 8 9 10")
    await exchange
    assert text_of(exchange.events if stream else [exchange.json]) == text


# ---- the echo of a model that begins its texts with a token


@STREAM
async def test_an_echo_has_the_special_tokens_of_a_prompt_of_ids(site: Served[FakeEngine], stream: bool) -> None:
    prompt = [1, *encode(site, "Hi")]
    exchange = site.open(COMPLETIONS, completion(prompt=prompt, echo=True, logprobs=0, stream=stream))
    await play(site, 1, alternatives=0)
    ((text, lists),) = joined(await exchange, stream).values()
    assert text == "<|im_start|>Hi" + ANSWER
    check_offsets(text, lists)


class Beginning(Recorder):
    """As of a model that begins its texts with a token of its own, which no client has written."""

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model.tokenizer)
        self.encode = lambda text, *, add_special_tokens=True: [
            *([1] if add_special_tokens else ()),
            *model.tokenizer.encode(text, add_special_tokens=False),
        ]


@STREAM
async def test_an_echo_is_the_prompt_as_the_client_wrote_it(model: ModelInfo, stream: bool) -> None:
    async with serving(FakeEngine(replace(model, tokenizer=Beginning(model)))) as site:
        exchange = site.open(COMPLETIONS, completion(prompt="Hi", echo=True, stream=stream))
        await play(site, 1)
        await exchange
        assert site.engine.sequences[0].request.prompt_token_ids[0] == 1
        assert text_of(exchange.events if stream else [exchange.json]) == "Hi" + ANSWER
