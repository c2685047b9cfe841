from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling.params import SamplingParams
from server.engine.tokenizer import FolderTokenizer
from server.ledger import Ledger
from server.request import EngineRequest, FinishReason, TokenDelta
from server.streaming.choice import Choice

TEXT = "The capital of France is Paris, 🙂 and so on. The end."


def choice_of(tokenizer: FolderTokenizer, **params: Any) -> Choice:
    request = EngineRequest("x-0", tokenizer.encode("Hi"), SamplingParams(max_tokens=100, **params))
    return Choice(0, request, tokenizer.backend, Ledger(id="x"))


def step(choice: Choice, delta: TokenDelta) -> str:
    return choice.postprocess(choice.detokenize(delta), delta)


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
    assert "".join(choice.text) == text
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
    assert "".join(choice.text) == "ok"
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
