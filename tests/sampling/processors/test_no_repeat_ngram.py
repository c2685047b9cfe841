"""No n-gram comes twice, as transformers has it, but never at the price of having nothing to sample."""

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import NoRepeatNGramLogitsProcessor

from sampling.processors.base import Group, Row
from sampling.processors.no_repeat_ngram import NoRepeatNgram
from sampling.shaping import Shaping

A, B, C, D, UNUSED = range(5)

OUT = -torch.inf

relaxed = settings(deadline=None)


def row(context: Sequence[int], size: int, prompt_tokens: int = 0) -> Row:
    shaping = Shaping(no_repeat_ngram_size=size)
    return Row(shaping, 1.0, 0, list(context[:prompt_tokens]), list(context[prompt_tokens:]))


def shaped(logits: torch.Tensor, *rows: Row) -> torch.Tensor:
    return NoRepeatNgram().apply(logits, Group(rows, torch.device("cpu")))


def banned(one: Row) -> set[int]:
    logits = shaped(torch.zeros(1, 5), one)[0].tolist()
    assert set(logits) <= {0.0, OUT}
    return {token for token, logit in enumerate(logits) if logit == OUT}


def test_a_token_that_would_complete_a_known_ngram_is_out() -> None:
    assert banned(row([A, B, C, A, B], 3)) == {C}
    assert banned(row([A, B, C, A, B, D, A, B], 3)) == {C, D}
    assert banned(row([A, B, C, A, B], 4)) == set()


def test_an_ngram_may_overlap_the_one_it_repeats() -> None:
    assert banned(row([A, A], 2)) == {A}
    assert banned(row([A, A, A], 3)) == {A}


def test_ngrams_reach_across_the_end_of_the_prompt() -> None:
    for prompt_tokens in range(6):
        assert banned(row([A, B, C, A, B], 3, prompt_tokens)) == {C}


def test_a_size_of_one_takes_out_every_token_that_was_there() -> None:
    assert banned(row([A, C, A], 1)) == {A, C}
    assert banned(row([], 1)) == set()


def test_a_context_shorter_than_the_ngram_bans_nothing() -> None:
    assert banned(row([A], 3)) == set()
    assert banned(row([A, A], 3)) == set()


def test_a_row_that_would_lose_its_last_token_stays_as_it_is_and_others_do_not() -> None:
    logits = torch.tensor([[OUT, OUT, 3.0, OUT, OUT], [1.0, 2.0, 3.0, 4.0, 5.0]])
    context = [A, B, C, A, B]
    after = shaped(logits, row(context, 3), row(context, 3))
    assert after.tolist() == [[OUT, OUT, 3.0, OUT, OUT], [1.0, 2.0, OUT, 4.0, 5.0]]


def test_a_row_that_would_lose_all_of_several_tokens_keeps_each() -> None:
    logits = torch.tensor([[1.0, 2.0, OUT, OUT, OUT]])
    assert shaped(logits, row([A, B, A, C], 1)).tolist() == [[1.0, 2.0, OUT, OUT, OUT]]


def test_each_row_has_its_own_size_and_history() -> None:
    after = shaped(torch.zeros(3, 5), row([A, B, A], 2), row([A, B, A], 1), row([A, B], 2))
    assert [[logit == OUT for logit in line] for line in after.tolist()] == [
        [False, True, False, False, False],
        [True, True, False, False, False],
        [False] * 5,
    ]


def test_it_is_wanted_with_a_size() -> None:
    assert NoRepeatNgram().wanted(Shaping(no_repeat_ngram_size=1))
    assert not NoRepeatNgram().wanted(Shaping())


@relaxed
@given(st.lists(st.integers(A, D), min_size=1, max_size=40), st.integers(1, 5), st.integers(0, 40))
def test_every_step_of_a_growing_output_is_as_transformers_has_it(
    context: list[int], size: int, prompt_tokens: int
) -> None:
    theirs = NoRepeatNGramLogitsProcessor(size)
    growing = row(context[:prompt_tokens], size, prompt_tokens)
    for end in range(prompt_tokens, len(context)):
        growing.output.append(context[end])
        logits = torch.arange(5, dtype=torch.float32).unsqueeze(0)
        wanted = theirs(torch.tensor([context[: end + 1]]), logits)
        assert shaped(logits.clone(), growing).tolist() == wanted.tolist()
