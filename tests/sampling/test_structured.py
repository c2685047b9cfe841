"""A constraint that could cost the engine too much is refused with a reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling.structured import (
    MAX_CHARACTERS,
    MAX_CHOICES,
    MAX_DEPTH,
    MAX_REGEX,
    MAX_REPEATS,
    StructuredError,
    bounded,
    choices,
    regex,
    schema_text,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 10) | st.text("abé🙂", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc$", max_size=4), inner, max_size=3),
    max_leaves=10,
)


def nested(depth: int) -> Any:
    """So deep in all, in turn an object and a list."""
    node: Any = {}
    for level in range(depth - 1):
        node = {"items": node} if level % 2 else [node]
    return node if isinstance(node, dict) else {"anyOf": node}


@given(st.dictionaries(st.text("abc$", max_size=4), JSON, max_size=4))
def test_a_schema_within_bounds_stays_what_it_is(schema: dict[str, Any]) -> None:
    assert json.loads(schema_text(schema)) == schema


@pytest.mark.parametrize("schema", [True, False, {}])
def test_the_smallest_schemas_are_schemas(schema: Any) -> None:
    assert json.loads(schema_text(schema)) == schema


@pytest.mark.parametrize("schema", [None, 1, "x", "{}", [], [{}]], ids=repr)
def test_what_is_no_object_is_no_schema(schema: Any) -> None:
    with pytest.raises(StructuredError, match="JSON object"):
        schema_text(schema)


@pytest.mark.parametrize("depth", [1, 2, MAX_DEPTH - 1, MAX_DEPTH])
def test_a_schema_may_be_as_deep_as_the_limit(depth: int) -> None:
    node: Any = {}
    for _ in range(depth - 1):
        node = {"items": node}
    assert json.loads(schema_text(node)) == node


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 1_000, 100_000])
def test_however_deep_a_schema_is_it_is_refused_and_never_recursed_into(depth: int) -> None:
    with pytest.raises(StructuredError, match=f"more than {MAX_DEPTH} deep"):
        schema_text(nested(depth))


def test_a_schema_that_is_too_long_is_refused() -> None:
    assert schema_text({"a": "x" * (MAX_CHARACTERS - 9)})
    with pytest.raises(StructuredError, match="longer than"):
        schema_text({"a": "x" * (MAX_CHARACTERS - 8)})


@pytest.mark.parametrize("name", ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"])
@pytest.mark.parametrize("count", [MAX_REPEATS + 1, 10**30, 1e300])
def test_a_count_beyond_the_limit_is_refused_wherever_it_stands(name: str, count: float) -> None:
    assert schema_text({name: MAX_REPEATS})
    for schema in ({name: count}, {"items": [{"anyOf": [{name: count}]}]}, {"properties": {"x": {name: count}}}):
        with pytest.raises(StructuredError, match=name):
            schema_text(schema)


def test_a_property_may_be_called_what_counts_are_called() -> None:
    schema = {"properties": {"maxItems": {"type": "integer"}, "pattern": {"type": "string"}}}
    assert json.loads(schema_text(schema)) == schema


@pytest.mark.parametrize("pattern", ["a{1025}", "a{,1025}", "(a|b){5,1025}", "x" * 2049])
def test_a_pattern_in_a_schema_is_checked_as_a_regex_is(pattern: str) -> None:
    with pytest.raises(StructuredError, match="regex"):
        schema_text({"properties": {"x": {"type": "string", "pattern": pattern}}})


@pytest.mark.parametrize(
    "pattern", ["a", "a{1024}", "a{3,}", "a{,1024}", r"[0-9]{4}-[0-9]{2}", "(яблоко|🙂)+", "[[a]]", "x" * MAX_REGEX]
)
def test_a_regex_within_bounds_stays_what_it_is(pattern: str) -> None:
    assert regex(pattern) == pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "x" * (MAX_REGEX + 1),
        "a{1025}",
        "a{2,99999}",
        "a{" + "9" * 2000 + "}",
    ],
)
def test_a_regex_that_costs_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(StructuredError, match="regex"):
        regex(pattern)


@pytest.mark.parametrize("options", [[], [""], ["a", ""], ["x"] * (MAX_CHOICES + 1), ["x" * MAX_CHARACTERS, "y"]])
def test_choices_are_some_and_have_text(options: list[str]) -> None:
    with pytest.raises(StructuredError):
        choices(options)


def test_choices_keep_their_order() -> None:
    assert choices(["yes", "no", "да"]) == ("yes", "no", "да")
    assert len(choices([str(i) for i in range(MAX_CHOICES)])) == MAX_CHOICES


@pytest.mark.parametrize("text", ["", " \n\t", "x" * (MAX_CHARACTERS + 1)], ids=["empty", "blank", "long"])
def test_a_grammar_has_text_and_not_too_much(text: str) -> None:
    with pytest.raises(StructuredError):
        bounded(text)


def test_a_grammar_within_bounds_stays_what_it_is() -> None:
    assert bounded("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
