"""The automaton knows what followed the latest tokens before, and doesn't work more for a longer text."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling.processors.suffixes import Suffixes
from tests.sampling.processors.oracle_dry import repeated_before

A, B, C, D = range(4)


def grown(text: Sequence[int], longest: int = 1000) -> Suffixes:
    suffixes = Suffixes(longest)
    for token in text:
        suffixes.append(token)
    return suffixes


def walked(suffixes: Suffixes, shortest: int = 1) -> list[tuple[int, set[int]]]:
    return [(length, set(followers)) for length, followers in suffixes.walk(shortest)]


def longest_of_each(suffixes: Suffixes, shortest: int) -> dict[int, int]:
    lengths: dict[int, int] = {}
    for length, followers in suffixes.walk(shortest):
        for token in followers:
            lengths.setdefault(token, length)
    return lengths


def test_an_empty_text_and_one_without_repetition_have_no_suffix_to_show() -> None:
    assert walked(Suffixes(10)) == []
    assert walked(grown([A, B, C])) == []


def test_suffixes_come_longest_first_with_all_that_followed_them() -> None:
    # "a b" was followed by c, "b" also by d
    assert walked(grown([A, B, C, B, D, A, B])) == [(2, {C}), (1, {C, D})]


def test_a_suffix_that_only_ever_ends_a_longer_one_is_not_shown_apart() -> None:
    assert walked(grown([A, B, C, A, B])) == [(2, {C})]


def test_a_suffix_may_overlap_its_earlier_occurrence() -> None:
    assert walked(grown([A, A, A, A])) == [(3, {A}), (2, {A}), (1, {A})]


def test_the_walk_ends_at_the_shortest_length_asked_for() -> None:
    assert walked(grown([A, A, A, A]), 2) == [(3, {A}), (2, {A})]
    assert walked(grown([A, A, A, A]), 4) == []


def test_a_longer_repetition_counts_as_the_longest_that_is_followed() -> None:
    # "a b c" is one state with "b c" and "c", which therefore still shows what followed
    assert walked(grown([A, B, C, D, A, B, C], longest=2)) == [(2, {D})]


def test_no_suffix_reaches_back_beyond_a_cut() -> None:
    suffixes = grown([A, B, C, D, A, B])
    suffixes.cut()
    assert walked(suffixes) == []
    suffixes.append(C)
    assert walked(suffixes) == [(1, {D})]
    suffixes.append(D)
    assert walked(suffixes) == [(2, {A})]


@settings(deadline=None)
@given(
    text=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([False] * 9 + [True])), max_size=40),
    longest=st.integers(1, 8) | st.just(1000),
    shortest=st.integers(1, 4),
)
def test_every_token_has_its_longest_suffix_at_every_step(
    text: list[tuple[int, bool]], longest: int, shortest: int
) -> None:
    suffixes, seen, limit = Suffixes(longest), [], 0
    for token, is_cut in text:
        suffixes.append(token)
        seen.append(token)
        limit += 1
        if is_cut:
            suffixes.cut()
            limit = 0
        expected = {token: repeated_before(seen, token, min(limit, longest)) for token in range(3)}
        assert longest_of_each(suffixes, shortest) == {token: n for token, n in expected.items() if n >= shortest}


def fibonacci_word(length: int) -> list[int]:
    """Full of repetitions within repetitions."""
    shorter, longer = [A], [A, B]
    while len(longer) < length:
        shorter, longer = longer, longer + shorter
    return longer[:length]


DEGENERATE = {
    "one token": [A] * 8000,
    "two in turn": [A, B] * 4000,
    "a long period": list(range(50)) * 160,
    "nested": fibonacci_word(8000),
    "random": random.Random(5).choices(range(3), k=8000),
    "with exceptions": ([A] * 99 + [B]) * 80,
}


@pytest.mark.parametrize("text", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_a_step_walks_over_no_more_states_than_lengths_are_followed(text: list[int]) -> None:
    suffixes = Suffixes(longest=20)
    for token in text:
        suffixes.append(token)
        assert len(list(suffixes.walk(shortest=2))) <= 19


@pytest.mark.parametrize("text", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_a_step_late_in_a_text_walks_over_no_more_states_than_an_early_one(text: list[int]) -> None:
    steps = []
    suffixes = Suffixes(longest=256)
    for token in text:
        suffixes.append(token)
        steps.append(len(list(suffixes.walk(shortest=2))))
    assert max(steps[4000:]) <= max(steps[:4000])


@pytest.mark.parametrize("text", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_there_are_at_most_two_states_for_each_token(text: list[int]) -> None:
    assert grown(text).states <= 2 * len(text)
