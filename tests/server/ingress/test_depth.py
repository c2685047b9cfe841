"""The depth of JSON, against a parser that counts honestly."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.ingress.depth import deeper_than

VALUES = st.recursive(
    st.none() | st.integers() | st.text() | st.text(alphabet='[]{}"\\n,'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='[{"\\a'), inner),
    max_leaves=40,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(VALUES, st.integers(1, 8), st.booleans(), st.sampled_from([None, 1]))
def test_it_agrees_with_a_parser(value: Any, limit: int, escaped: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=escaped, indent=indent).encode()
    assert deeper_than(limit, text) == (depth(value) > limit)


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("levels", [64, 65, 100, 10_000, 1_000_000])
def test_plain_nesting_is_counted_exactly(opening: bytes, closing: bytes, levels: int) -> None:
    assert deeper_than(64, opening * levels + b"1" + closing * levels) == (levels > 64)
    assert deeper_than(64, opening * levels) or levels <= 64  # never closed


def test_width_is_no_depth() -> None:
    assert not deeper_than(8, b"[" + b"[[]]," * 100_000 + b"{}]")


def test_brackets_in_strings_are_text() -> None:
    assert not deeper_than(8, json.dumps(['\\"[[[{{{' * 1000, "[" * 1000, "\\" * 7 + "[" * 100]).encode())
