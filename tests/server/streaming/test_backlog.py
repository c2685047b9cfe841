from collections.abc import Sequence
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from sampling.logprobs import Released, TokenLogprob
from sampling.params import SamplingParams
from sampling.parts import Arguments, Part, Reasoning, ToolCall
from server.engine.protocol import ModelInfo
from server.errors import SlowReader
from server.ledger import Ledger
from server.request import EngineRequest
from server.streaming.answer import Answer
from server.streaming.backlog import ENTRY_BYTES, EVENT_BYTES, ID_BYTES, Backlog, merged
from server.streaming.choice import Choice

PIECES = st.text("ab", min_size=1, max_size=3)
PARTS = st.one_of(PIECES, PIECES.map(Reasoning), st.builds(ToolCall, PIECES), PIECES.map(Arguments))


@pytest.fixture(scope="module")
def backend(model: ModelInfo) -> tokenizers.Tokenizer:
    return model.tokenizer.backend


def choice_of(backend: tokenizers.Tokenizer, index: int = 0, logprobs: int | None = None) -> Choice:
    params = SamplingParams(max_tokens=10, logprobs=logprobs)
    return Choice(index, EngineRequest(f"seq-{index}", (1,), params), backend, Ledger("req"))


def tokens(*ids: int) -> Released:
    return Released(list(ids), [TokenLogprob(token_id, -1.0, 1, ((7, -1.0),)) for token_id in ids], list(ids))


def runs_of(backlog: Backlog, choice: Choice) -> list[tuple[list[Part], list[int]]]:
    return [(run.parts, run.tokens.ids) for run in backlog.take(choice)]


def said(parts: Sequence[Part]) -> list[object]:
    answer = Answer()
    answer.add(ToolCall("first"))  # arguments have a call they belong to
    for part in parts:
        answer.add(part)
    return [getattr(item, "text", None) or (item.name, item.arguments) for item in answer.items]  # type: ignore[union-attr]


@given(st.lists(PARTS, max_size=12))
def test_merged_parts_say_the_same_and_no_two_neighbours_are_of_a_kind(parts: list[Part]) -> None:
    found = merged(parts)
    assert said(found) == said(parts)
    assert all(type(one) is not type(next) or isinstance(one, ToolCall) for one, next in pairwise(found))


def test_steps_of_one_kind_merge_with_their_tokens(backend: tokenizers.Tokenizer) -> None:
    backlog, choice = Backlog(10_000), choice_of(backend)
    for token_id, parts in enumerate([["Hm"], [" so"], [Reasoning("x")], [Reasoning("y"), Reasoning("z")], ["!"]]):
        choice.released = tokens(token_id)
        backlog.add(choice, parts)  # type: ignore[arg-type]
    assert choice.released == Released()
    assert runs_of(backlog, choice) == [(["Hm so"], [0, 1]), ([Reasoning("xyz")], [2, 3]), (["!"], [4])]


def test_a_step_of_two_kinds_or_with_a_call_stays_a_step(backend: tokenizers.Tokenizer) -> None:
    backlog, choice = Backlog(10_000), choice_of(backend)
    steps: list[list[Part]] = [["a"], ["b", Reasoning("c")], [Reasoning("d")], [ToolCall("e")], [ToolCall("f")]]
    for token_id, parts in enumerate(steps):
        choice.released = tokens(token_id)
        backlog.add(choice, parts)
    assert runs_of(backlog, choice) == [(parts, [token_id]) for token_id, parts in enumerate(steps)]


def test_what_was_added_stays_what_it_was(backend: tokenizers.Tokenizer) -> None:
    backlog, choice = Backlog(10_000), choice_of(backend)
    first: list[Part] = ["a"]
    backlog.add(choice, first)
    backlog.add(choice, ["b"])
    assert first == ["a"]


def test_choices_are_held_apart_and_in_the_order_they_fell_behind(backend: tokenizers.Tokenizer) -> None:
    backlog, choices = Backlog(10_000), [choice_of(backend, index) for index in range(3)]
    for index in (2, 0, 2):
        backlog.add(choices[index], [f"{index}"])
    assert backlog.choices == [choices[2], choices[0]]
    assert choices[1] not in backlog
    assert runs_of(backlog, choices[1]) == []
    assert runs_of(backlog, choices[2]) == [(["22"], [])]
    assert backlog.choices == [choices[0]]


def test_its_size_is_about_that_of_the_events_it_will_be(backend: tokenizers.Tokenizer) -> None:
    backlog, choice, other = Backlog(10_000), choice_of(backend, logprobs=1), choice_of(backend, 1)
    backlog.add(choice, ["héé"])
    assert backlog.size == EVENT_BYTES + 5
    choice.released = tokens(1, 2)
    backlog.add(choice, ["h"])
    assert backlog.size == EVENT_BYTES + 6 + 2 * (ID_BYTES + 2 * ENTRY_BYTES)
    backlog.add(other, [Reasoning("ab"), ToolCall("c")])
    backlog.take(choice)
    assert backlog.size == 2 * EVENT_BYTES + 3
    backlog.take(other)
    assert backlog.size == 0


def test_past_its_bound_the_reader_is_too_slow(backend: tokenizers.Tokenizer) -> None:
    backlog, choice = Backlog(EVENT_BYTES + 100), choice_of(backend)
    for _ in range(100):
        backlog.add(choice, ["x"])
    with pytest.raises(SlowReader):
        backlog.add(choice, ["x"])


def test_log_probabilities_count_long_before_their_text_does(backend: tokenizers.Tokenizer) -> None:
    backlog, choice = Backlog(20_000), choice_of(backend, logprobs=20)
    with pytest.raises(SlowReader):
        for token_id in range(20):
            choice.released = tokens(token_id)
            backlog.add(choice, ["x"])


def test_a_cleared_backlog_holds_nothing(backend: tokenizers.Tokenizer) -> None:
    backlog, choice = Backlog(1000), choice_of(backend)
    backlog.add(choice, ["x"])
    backlog.clear()
    assert (backlog.size, backlog.choices) == (0, [])
