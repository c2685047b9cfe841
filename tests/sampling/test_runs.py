"""A run is as long as it is, however the text is cut."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling.runs import RunGuard

# Blanks and digits of several scripts, and what only looks like digits: no run may go on across it.
ALPHABET = ' \n\t\u2028\u3000\x1c019٣²⑤½ax"{'


def longest(text: str) -> int:
    return max(map(len, re.findall(r"\s+|\d+", text)), default=0)


@given(st.lists(st.text(ALPHABET, max_size=6), max_size=12), st.integers(1, 6))
def test_a_run_is_found_with_the_piece_that_makes_it_too_long(pieces: list[str], limit: int) -> None:
    guard = RunGuard(limit)
    text = ""
    for piece in pieces:
        text += piece
        found = guard.exceeded(piece)
        assert found is (longest(text) > limit), text
        if found:
            return


@pytest.mark.parametrize("letter", ["²", "⑤", "½", "Ⅷ"])
def test_a_character_that_is_no_decimal_digit_ends_a_run_of_digits(letter: str) -> None:
    guard = RunGuard(3)
    assert [guard.exceeded(piece) for piece in ("123", letter, "123")] == [False, False, False]


@pytest.mark.parametrize("char", [" ", "\n", "\t", "\u3000", "0", "9", "٣"])
def test_a_run_may_be_as_long_as_the_limit(char: str) -> None:
    assert not RunGuard(512).exceeded(char * 512)
    assert RunGuard(512).exceeded(char * 513)
    guard = RunGuard(512)
    assert [guard.exceeded(char) for _ in range(513)] == [False] * 512 + [True]


def test_blanks_and_digits_are_runs_of_their_own() -> None:
    guard = RunGuard(3)
    assert not any(guard.exceeded(piece) for piece in ("   ", "123", "\n\n", "", "\n", "45", "6", "x", " ", "  "))
    assert guard.exceeded(" ")
