import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling.params import SamplingParams, Structured
from sampling.parts import Part, Reasoning, ToolCall
from sampling.reasoning import ThinkParser
from sampling.tools import CallArrayParser, HermesParser, NamedCallParser
from server.engine.tokenizer import FolderTokenizer
from server.errors import RunawayOutput
from server.ledger import Ledger
from server.request import PLAIN, EngineRequest, FinishReason, Reading, TokenDelta
from server.streaming.choice import Choice
from tests.conformance.replay import logprob_of

TEXT = "The capital of France is Paris, 🙂 and so on. The end."


def choice_of(tokenizer: FolderTokenizer, reading: Reading = PLAIN, **params: Any) -> Choice:
    request = EngineRequest("x-0", tokenizer.encode("Hi"), SamplingParams(max_tokens=100, **params))
    return Choice(0, request, tokenizer.backend, Ledger(id="x"), reading)


def parts_of(choice: Choice, delta: TokenDelta) -> list[Part]:
    """What may be shown, and is."""
    parts = choice.postprocess(choice.detokenize(delta), delta)
    choice.tell(parts)
    return parts


def step(choice: Choice, delta: TokenDelta) -> str:
    parts = parts_of(choice, delta)
    assert all(isinstance(part, str) for part in parts)
    return "".join(map(str, parts))


def cut(ids: list[int], cuts: list[int]) -> list[list[int]]:
    """`ids` in deltas as long as `cuts` says."""
    deltas, start = [], 0
    for size in cuts:
        deltas.append(ids[start : start + size])
        start += size
    return [delta for delta in [*deltas, ids[start:]] if delta]


@given(st.lists(st.integers(1, 6), max_size=30))
@pytest.mark.parametrize(
    ("stop", "text", "reason"),
    [
        ((), TEXT, FinishReason.LENGTH),
        (("never",), TEXT, FinishReason.LENGTH),
        (("Paris",), "The capital of France is ", FinishReason.STOP),
        ((". The e", "zzz"), "The capital of France is Paris, 🙂 and so on", FinishReason.STOP),
        (("🙂",), "The capital of France is Paris, ", FinishReason.STOP),
        (("end.",), "The capital of France is Paris, 🙂 and so on. The ", FinishReason.STOP),
    ],
)
def test_however_tokens_come_in_deltas_text_reason_and_count_are_the_same(
    tokenizer: FolderTokenizer, stop: tuple[str, ...], text: str, reason: FinishReason, cuts: list[int]
) -> None:
    ids = tokenizer.encode(TEXT)
    choice = choice_of(tokenizer, stop=stop)
    deltas = cut(ids, cuts)
    for number, delta in enumerate(deltas, 1):
        if choice.finish_reason is None:
            step(choice, TokenDelta(delta, FinishReason.LENGTH if number == len(deltas) else None))
    assert choice.answer.text == text
    assert choice.finish_reason is reason
    counted = next(n for n in range(len(ids) + 1) if n == len(ids) or completes(tokenizer, ids[:n], stop))
    assert choice.output_tokens == counted


def completes(tokenizer: FolderTokenizer, ids: list[int], stops: tuple[str, ...]) -> bool:
    return any(stop in tokenizer.backend.decode(ids) for stop in stops)


@pytest.mark.parametrize("stop", [(), ("zzz",)])
def test_an_end_token_is_counted_and_has_no_text(tokenizer: FolderTokenizer, stop: tuple[str, ...]) -> None:
    choice = choice_of(tokenizer, stop=stop, skip_special_tokens=False)
    assert step(choice, TokenDelta([*tokenizer.encode("ok"), 2], FinishReason.STOP, stop_token=True)) == "ok"
    assert choice.output_tokens == 2


@pytest.mark.parametrize("stop", [(), ("zzz",)])
@pytest.mark.parametrize(
    "last", [TokenDelta((), FinishReason.LENGTH), TokenDelta((2,), FinishReason.STOP, stop_token=True)]
)
def test_an_unfinished_character_is_flushed_at_the_end(
    tokenizer: FolderTokenizer, stop: tuple[str, ...], last: TokenDelta
) -> None:
    choice = choice_of(tokenizer, stop=stop)
    assert step(choice, TokenDelta(tokenizer.encode("🙂")[:1])) == ""
    assert step(choice, last) == "\ufffd"
    assert choice.output_tokens == 1 + len(last.token_ids)


def test_a_stop_may_be_what_is_left_of_an_unfinished_character(tokenizer: FolderTokenizer) -> None:
    choice = choice_of(tokenizer, stop=("\ufffd",))
    step(choice, TokenDelta(tokenizer.encode("ok🙂")[:-1], FinishReason.LENGTH))
    assert choice.answer.text == "ok"
    assert choice.finish_reason is FinishReason.STOP


def test_what_a_stop_holds_back_is_shown_when_the_sequence_ends(tokenizer: FolderTokenizer) -> None:
    choice = choice_of(tokenizer, stop=("end of all",))
    shown = [step(choice, TokenDelta(tokenizer.encode(text))) for text in ("so", " end", " of")]
    shown.append(step(choice, TokenDelta((2,), FinishReason.STOP, stop_token=True)))
    assert shown == ["so", " ", "", "end of"]


def test_special_tokens_are_shown_only_when_asked_for(tokenizer: FolderTokenizer) -> None:
    delta = TokenDelta([1, *tokenizer.encode("ok")], FinishReason.LENGTH)
    assert step(choice_of(tokenizer), delta) == "ok"
    assert step(choice_of(tokenizer, skip_special_tokens=False), delta) == "<|im_start|>ok"


def delta_of(ids: list[int], finish: FinishReason | None = None) -> TokenDelta:
    return TokenDelta(ids, finish, logprobs=[logprob_of(token_id, 1) for token_id in ids])


THOUGHT = "<think>\nHm, 🙂 hm.\n</think>\n\n"
CALL = '\n<tool_call>\n{"name": "clock", "arguments": {"zone": "Łódź"}}\n</tool_call>'
THINKING = Reading(reasoning=ThinkParser, return_token_ids=True)
CALLING = Reading(reasoning=ThinkParser, tools=HermesParser, return_token_ids=True)


@given(st.lists(st.integers(1, 6), max_size=30))
@pytest.mark.parametrize("stop", [(), ("never",), ("Paris",), ("🙂",), ("of Fr", " end.")])
def test_tokens_leave_with_their_text_in_order_and_never_before_it(
    tokenizer: FolderTokenizer, stop: tuple[str, ...], cuts: list[int]
) -> None:
    ids = tokenizer.encode(TEXT)
    choice = choice_of(tokenizer, Reading(return_token_ids=True), stop=stop, logprobs=1)
    deltas = cut(ids, cuts)
    for number, delta in enumerate(deltas, 1):
        step(choice, delta_of(delta, FinishReason.LENGTH if number == len(deltas) else None))
        released = choice.released.ids
        assert released == ids[: len(released)]
        if choice.finish_reason is not None:
            break
        assert choice.answer.text.startswith(tokenizer.backend.decode(released))
        assert [entry.token_id for entry in choice.released.logprobs] == released
    assert choice.released.ids == ids[: choice.output_tokens]
    shown = choice.released.logprobs
    assert [entry.token_id for entry in shown] == ids[: len(shown)]
    offsets = choice.released.offsets
    assert all(first <= second for first, second in pairwise(offsets))
    assert all(offset < len(choice.answer.text) for offset in offsets)
    assert tokenizer.backend.decode(ids[: len(shown)]).startswith(choice.answer.text)


@given(st.lists(st.integers(1, 9), max_size=30))
@pytest.mark.parametrize(
    ("reading", "text"),
    [(THINKING, THOUGHT + TEXT), (CALLING, THOUGHT + "So." + CALL * 2), (CALLING, THOUGHT + TEXT), (CALLING, CALL)],
    ids=["a thought", "all", "a thought and no call", "a call"],
)
def test_however_tokens_are_cut_the_parts_and_the_tokens_are_the_same(
    tokenizer: FolderTokenizer, reading: Reading, text: str, cuts: list[int]
) -> None:
    ids = tokenizer.encode(text)

    def read(deltas: list[list[int]]) -> Choice:
        choice = choice_of(tokenizer, reading, logprobs=1)
        for number, delta in enumerate(deltas, 1):
            last = delta_of(delta, FinishReason.STOP if number == len(deltas) else None)
            parts_of(choice, last)
        return choice

    found, whole = read(cut(ids, cuts)), read([ids])
    assert found.released == whole.released == found.answer.tokens
    assert found.released.ids == ids
    assert (found.answer.text, found.answer.reasoning) == (whole.answer.text, whole.answer.reasoning)
    assert [(call.name, call.arguments) for call in found.answer.calls] == [
        (call.name, call.arguments) for call in whole.answer.calls
    ]
    assert (found.output_tokens, found.reasoning_tokens) == (whole.output_tokens, whole.reasoning_tokens)


def test_a_token_that_ends_within_a_character_leaves_with_the_one_that_completes_it(tokenizer: FolderTokenizer) -> None:
    choice = choice_of(tokenizer, Reading(return_token_ids=True))
    first, *others = tokenizer.encode("🫠")
    assert others
    counts = []
    for token_id in (first, *others):
        step(choice, TokenDelta([token_id]))
        counts.append(len(choice.released.ids))
    assert counts == [0] * len(others) + [len(others) + 1]


@pytest.mark.parametrize(
    ("thought", "answer"),
    [
        (THOUGHT, TEXT),
        ("<think>Hm.</think>", "Yes, Paris."),
        ("<think>\nHm, let me", ""),
        ("", TEXT),
        ("", "Paris <think> is."),
    ],
)
def test_the_tokens_of_a_thought_are_counted_and_none_of_the_answers(
    tokenizer: FolderTokenizer, thought: str, answer: str
) -> None:
    choice = choice_of(tokenizer, THINKING)
    ids = tokenizer.encode(thought + answer)
    delta = TokenDelta(ids, FinishReason.STOP)
    parts_of(choice, delta)
    lengths = [len(tokenizer.backend.decode(ids[:count])) for count in range(len(ids) + 1)]
    least = sum(length < len(thought.rstrip()) for length in lengths)
    most = sum(length <= len(thought) for length in lengths) - 1  # blanks after the thought belong to neither
    assert least <= choice.reasoning_tokens <= most
    assert choice.output_tokens == len(ids)


def test_a_prompt_that_opened_the_thinking_is_gone_on_with(tokenizer: FolderTokenizer) -> None:
    choice = choice_of(tokenizer, Reading(reasoning=lambda: ThinkParser(inside=True)))
    delta = TokenDelta(tokenizer.encode("Hm.</think>Yes"), FinishReason.STOP)
    parts = parts_of(choice, delta)
    assert isinstance(parts[0], Reasoning)
    assert (choice.answer.reasoning, choice.answer.content) == ("Hm.", "Yes")


def test_a_second_call_ends_the_choice_where_one_is_allowed(tokenizer: FolderTokenizer) -> None:
    choice = choice_of(tokenizer, Reading(tools=HermesParser, parallel_calls=False))
    delta = TokenDelta(tokenizer.encode(CALL * 2 + " and more"))
    parts = parts_of(choice, delta)
    assert sum(isinstance(part, ToolCall) for part in parts) == 1
    assert choice.finish_reason is FinishReason.STOP
    assert len(choice.answer.calls) == 1


def test_stop_strings_count_neither_in_thoughts_nor_in_calls(tokenizer: FolderTokenizer) -> None:
    choice = choice_of(tokenizer, CALLING, stop=("Łódź", "hm"))
    delta = TokenDelta(tokenizer.encode(THOUGHT + "So." + CALL), FinishReason.STOP)
    parts_of(choice, delta)
    assert choice.stop_string is None
    assert choice.answer.text == "So."
    assert choice.answer.calls[0].arguments == '{"zone": "Łódź"}'


@given(st.lists(st.integers(1, 5), max_size=20))
@pytest.mark.parametrize("run", [" " * 40, "\n" * 40, "1" * 40, "\t \n" * 14])
def test_a_run_under_a_constraint_ends_the_answer(tokenizer: FolderTokenizer, run: str, cuts: list[int]) -> None:
    json_object = Structured("json_object")
    ids = tokenizer.encode('{"a":' + run)
    for limit, structured in ((0, json_object), (64, json_object), (8, None)):
        choice = choice_of(tokenizer, Reading(run_limit=limit), structured=structured)
        for delta in cut(ids, cuts):
            step(choice, TokenDelta(delta))
    choice = choice_of(tokenizer, Reading(run_limit=8), structured=json_object)
    with pytest.raises(RunawayOutput):
        for delta in cut(ids, cuts):
            step(choice, TokenDelta(delta))
    assert max(map(len, re.findall(r"\s+|\d+", choice.answer.text)), default=0) <= 8


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (Reading(tools=lambda: NamedCallParser("clock"), run_limit=8), '{"zone":' + " " * 30),
        (Reading(tools=CallArrayParser, run_limit=8), "[" + "\n" * 30),
    ],
)
def test_the_arguments_of_a_forced_call_may_not_run_either(
    tokenizer: FolderTokenizer, reading: Reading, text: str
) -> None:
    choice = choice_of(tokenizer, reading, structured=Structured("json", "{}"))
    delta = TokenDelta(tokenizer.encode(text))
    with pytest.raises(RunawayOutput):
        parts_of(choice, delta)


def test_cached_tokens_and_prompt_log_probabilities_are_those_of_the_first_delta(tokenizer: FolderTokenizer) -> None:
    choice = choice_of(tokenizer)
    step(choice, TokenDelta(tokenizer.encode("a"), prompt_logprobs=[None, logprob_of(3, 1)], cached_tokens=16))
    step(choice, TokenDelta(tokenizer.encode("b"), FinishReason.LENGTH))
    assert choice.cached_tokens == 16
    assert choice.prompt_logprobs == [None, logprob_of(3, 1)]
