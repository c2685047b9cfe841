"""DRY takes off what its definition says, token by token as all at once, and stops at breakers as llama.cpp does."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling.processors.base import Group, Row
from sampling.processors.dry import FARTHEST, HEAVIEST, Dry
from sampling.shaping import Shaping
from tests.sampling.processors import oracle_dry

A, B, C, D, E, F = range(6)

relaxed = settings(deadline=None)


def row(context: Sequence[int], prompt_tokens: int = 0, **values: Any) -> Row:
    """A request with llama.cpp's usual values, multiplier 0.8, base 1.75 and length 2, but for those given."""
    shaping = Shaping(**{"dry_multiplier": 0.8, **{f"dry_{name}": value for name, value in values.items()}})
    return Row(shaping, 1.0, 0, list(context[:prompt_tokens]), list(context[prompt_tokens:]))


def shaped(logits: torch.Tensor, *rows: Row) -> torch.Tensor:
    return Dry().apply(logits, Group(rows, torch.device("cpu")))


def lost(one: Row, vocabulary: int = 6) -> list[float]:
    """What each token's logit loses."""
    return [-logit for logit in shaped(torch.zeros(1, vocabulary), one)[0].tolist()]


def only(penalties: dict[int, float], vocabulary: int = 6) -> Any:
    return pytest.approx([penalties.get(token, 0.0) for token in range(vocabulary)], rel=1e-6)


# ---- by hand


def test_a_token_that_would_repeat_more_than_the_allowed_length_loses_the_multiplier() -> None:
    assert lost(row([A, B, C, A, B])) == only({C: 0.8})


def test_each_further_token_of_a_repetition_multiplies_the_penalty_by_the_base() -> None:
    assert lost(row([A, B, C, D, A, B, C])) == only({D: 0.8 * 1.75})
    assert lost(row([A, B, C, D, E, A, B, C, D])) == only({E: 0.8 * 1.75**2})


def test_a_repetition_below_the_allowed_length_costs_nothing() -> None:
    assert lost(row([A, B, C, D, B])) == only({})
    assert lost(row([A, B, C, A, B], allowed_length=3)) == only({})


def test_prompt_and_output_are_one_context() -> None:
    for prompt_tokens in range(6):
        assert lost(row([A, B, C, A, B], prompt_tokens)) == only({C: 0.8})


def test_a_repetition_may_overlap_what_it_repeats() -> None:
    assert lost(row([A, A, A, A])) == only({A: 0.8 * 1.75})
    assert lost(row([A, B, A, B, A])) == only({B: 0.8 * 1.75})


def test_of_several_repetitions_that_a_token_continues_the_longest_counts() -> None:
    # d followed "b c" and "a b c"; e followed "b c" alone
    context = [B, C, D, F, A, B, C, D, F, B, C, E, A, B, C]
    assert lost(row(context)) == only({D: 0.8 * 1.75, E: 0.8})


def test_a_base_of_one_takes_the_multiplier_off_whatever_the_length() -> None:
    assert lost(row([A] * 50, base=1.0)) == only({A: 0.8})


# ---- breakers


def test_a_repetition_does_not_reach_back_across_a_breaker() -> None:
    repeated = [A, B, F, C, D, E, A, B, F, C, D]
    assert lost(row(repeated)) == only({E: 0.8 * 1.75**3})
    assert lost(row(repeated, sequence_breakers=((F,),))) == only({E: 0.8})


def test_a_breaker_is_never_penalised() -> None:
    assert lost(row([A, B, F, A, B], sequence_breakers=((F,),))) == only({})


def test_the_first_token_of_a_longer_breaker_is_penalised() -> None:
    assert lost(row([A, B, F, A, B], sequence_breakers=((F, A, A),))) == only({F: 0.8})


def test_a_longer_breaker_counts_once_it_is_complete() -> None:
    repeated = [A, B, E, F, C, A, B, E, F]
    incomplete = repeated[:-1]
    assert lost(row(incomplete, sequence_breakers=((E, F),), allowed_length=1)) == only({F: 0.8 * 1.75**2})
    assert lost(row(repeated, sequence_breakers=((E, F),), allowed_length=1)) == only({})


def test_of_breakers_that_begin_together_the_longest_complete_one_counts() -> None:
    breakers = ((E,), (E, F), (E, F, A, A))
    assert oracle_dry.tokens_behind_breaker([B, E, F, A, B], breakers) == 2
    context = [F, A, B, C, E, F, A, B]
    assert lost(row(context, sequence_breakers=breakers)) == only({C: 0.8})
    assert lost(row(context, sequence_breakers=((E,),))) == only({C: 0.8 * 1.75})


def test_a_breaker_within_another_hides_the_end_of_the_other() -> None:
    """llama.cpp's own example: with "ni" and "amniotic", "otic" still counts as repeated."""
    am, ni, ot, ic, end, other = range(6)
    repeated = [am, ni, ot, ic, end, other, am, ni, ot, ic]
    assert lost(row(repeated, sequence_breakers=((am, ni, ot, ic), (ni,)))) == only({end: 0.8})
    assert lost(row(repeated, sequence_breakers=((am, ni, ot, ic),))) == only({})


# ---- llama.cpp's own cases: tests/test-sampling.cpp, `test_dry`

PUBLISHED = [
    ([0, 1], [0.25] * 4, 1.0, 2, ()),
    ([0, 1, 2, 0, 1], [0.296923, 0.296923, 0.109232, 0.296923], 1.0, 2, ()),
    ([0, 1, 3, 4, 0, 1], [0.2] * 5, 1.0, 2, ((3,),)),
    ([0, 1, 2, 0, 1], [0.241818, 0.241818, 0.032727, 0.241818, 0.241818], 2.0, 2, ()),
    ([0, 1, 2, 3, 4, 0, 1], [0.2] * 5, 1.0, 4, ()),
]


@pytest.mark.parametrize(("context", "probabilities", "multiplier", "allowed_length", "breakers"), PUBLISHED)
def test_equal_probabilities_become_those_that_llama_cpp_publishes(
    context: list[int],
    probabilities: list[float],
    multiplier: float,
    allowed_length: int,
    breakers: tuple[tuple[int, ...], ...],
) -> None:
    one = row(context, multiplier=multiplier, base=1.1, allowed_length=allowed_length, sequence_breakers=breakers)
    logits = torch.zeros(1, len(probabilities))
    assert shaped(logits, one).softmax(1)[0].tolist() == pytest.approx(probabilities, abs=1e-5)


# ---- bounds


def test_the_exponent_ends_where_the_power_leaves_float32() -> None:
    # ln 1e10 = 23.03, so 88.7 allows 3
    assert lost(row([A] * 20, base=1e10, multiplier=0.5)) == only({A: 0.5e30})


def test_no_penalty_is_so_large_that_a_temperature_could_make_it_infinite() -> None:
    assert lost(row([A] * 500, base=1.75)) == only({A: HEAVIEST})
    assert lost(row([A] * 500, base=1e20, multiplier=5.0)) == only({A: 5e20})


def test_a_low_base_grows_until_the_farthest_repetition_that_is_followed() -> None:
    assert lost(row([A] * (FARTHEST + 3), base=1.01)) == only({A: 0.8 * 1.01**FARTHEST})
    assert lost(row([A] * (FARTHEST + 90), base=1.01)) == only({A: 0.8 * 1.01**FARTHEST})


def test_what_followed_a_short_suffix_counts_however_long_the_repetition_is() -> None:
    context = [C, A, A, D, *[A] * 2000]
    assert lost(row(context)) == only({A: HEAVIEST, D: 0.8})


def test_a_token_that_is_out_stays_out() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 2.0]])
    assert shaped(logits, row([A, B, C, A, B])).tolist() == [[0.0, 1.0, -torch.inf, 2.0]]


# ---- many rows, many steps


def test_each_row_loses_its_own_penalties_and_one_without_repetitions_keeps_its_logits() -> None:
    logits = torch.arange(18, dtype=torch.float32).view(3, 6)
    before = logits.tolist()
    after = shaped(logits, row([A, B, C, A, B]), row([A, B, C, D]), row([D, E, F, D, E], multiplier=3.0))
    before[0][C] -= 0.8
    before[2][F] -= 3.0
    assert after.tolist() == [pytest.approx(line) for line in before]


def test_tokens_once_read_are_not_looked_at_again() -> None:
    one = row([A, B, C, D], prompt_tokens=3)
    assert lost(one) == only({})
    one.prompt, one.output = [F] * 3, [F, A, B]
    assert lost(one) == only({C: 0.8})


def test_a_request_that_is_computed_anew_goes_on_with_what_it_had_read() -> None:
    one = row([A, B, C, A], prompt_tokens=2)
    lost(one)
    one.prompt, one.output = [A], []
    lost(one)
    one.prompt, one.output = [A, B], [C, A, B]
    assert lost(one) == only({C: 0.8})


def test_it_is_wanted_with_a_multiplier_and_a_base_of_at_least_one() -> None:
    assert Dry().wanted(Shaping(dry_multiplier=0.8))
    assert not Dry().wanted(Shaping(dry_base=2.0))
    assert not Dry().wanted(Shaping(dry_multiplier=0.8, dry_base=0.9))


# ---- against the definition


@st.composite
def requests(draw: st.DrawFn, longest_context: int) -> tuple[list[int], dict[str, Any]]:
    tokens = st.integers(0, draw(st.integers(1, 3)))
    breakers = st.lists(st.lists(tokens | st.integers(0, 3), min_size=1, max_size=4).map(tuple), max_size=3)
    values = {
        "multiplier": draw(st.sampled_from([0.5, 0.8, 3.0])),
        "base": draw(st.sampled_from([1.0, 1.1, 1.75, 1e20])),
        "allowed_length": draw(st.integers(1, 4)),
        "sequence_breakers": tuple(draw(breakers)),
    }
    return draw(st.lists(tokens, max_size=longest_context)), values


def expected(context: Sequence[int], values: dict[str, Any]) -> np.ndarray:
    breakers = values["sequence_breakers"]
    return oracle_dry.penalties(context, 5, values["multiplier"], values["base"], values["allowed_length"], breakers)


@relaxed
@given(requests(longest_context=60), st.integers(0, 60))
def test_a_context_read_at_once_loses_what_the_definition_says(
    drawn: tuple[list[int], dict[str, Any]], prompt_tokens: int
) -> None:
    context, values = drawn
    np.testing.assert_allclose(lost(row(context, prompt_tokens, **values), 5), expected(context, values), rtol=1e-6)


@relaxed
@given(requests(longest_context=25), st.integers(0, 25))
def test_every_step_of_a_growing_output_loses_what_the_definition_says(
    drawn: tuple[list[int], dict[str, Any]], prompt_tokens: int
) -> None:
    context, values = drawn
    growing = row(context[:prompt_tokens], prompt_tokens, **values)
    for end in range(prompt_tokens, len(context)):
        growing.output.append(context[end])
        at_end = expected(context[: end + 1], values)
        np.testing.assert_allclose(lost(growing, 5), at_end, rtol=1e-6)


@relaxed
@given(st.lists(requests(longest_context=60), min_size=2, max_size=4))
def test_rows_of_one_batch_lose_what_each_would_lose_alone(batch: list[tuple[list[int], dict[str, Any]]]) -> None:
    rows = [row(context, **values) for context, values in batch]
    together = -shaped(torch.zeros(len(rows), 5), *rows)
    for line, (context, values) in zip(together, batch, strict=True):
        np.testing.assert_allclose(line, expected(context, values), rtol=1e-6)
