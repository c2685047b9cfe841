"""What a tool's JSON schema says of the values that a format writes without their quotes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

ANY: Final[frozenset[str]] = frozenset()
MAX_REFERENCES: Final = 8  # in a row; a schema may refer to itself

# What a model may write for JSON's own words, having learned Python first.
PYTHON_WORDS: Final = {"True": ("boolean", "true"), "False": ("boolean", "false"), "None": ("null", "null")}


def parameter_types(tools: Sequence[Mapping[str, Any]], name: str) -> dict[str, frozenset[str]]:
    """The types each parameter of a tool may have, as far as they are told."""
    schema = next((tool.get("parameters") for tool in tools if tool.get("name") == name), None)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping):
        return {}
    return {key: _types(value, schema) for key, value in properties.items()}


def is_text(types: frozenset[str]) -> bool:
    return not types or "string" in types


def json_of(value: str, types: frozenset[str]) -> str:
    """The value as JSON: as it stands if it is of one of the types, else as a string."""
    value_type, word = PYTHON_WORDS.get(value.strip(), ("", ""))
    if value_type in types:
        return word
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return quoted(value)
    return value.strip() if types.intersection(_types_of(parsed)) else quoted(value)


def quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def _types(schema: object, root: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(_each_type(schema, root, MAX_REFERENCES))


def _each_type(schema: object, root: Mapping[str, Any], references: int) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    types = schema.get("type", ())
    yield from (types,) if isinstance(types, str) else (word for word in types if isinstance(word, str))
    if references:
        for alternative in (*_listed(schema, "anyOf"), *_listed(schema, "oneOf"), _referred(schema, root)):
            yield from _each_type(alternative, root, references - 1)


def _listed(schema: Mapping[str, Any], key: str) -> Sequence[object]:
    alternatives = schema.get(key)
    return alternatives if isinstance(alternatives, list) else ()


def _referred(schema: Mapping[str, Any], root: Mapping[str, Any]) -> object:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: object = root
    for step in reference[2:].split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _types_of(value: object) -> tuple[str, ...]:
    match value:
        case None:
            return ("null",)
        case bool():
            return ("boolean",)
        case int():
            return ("integer", "number")
        case float():
            return ("integer", "number") if value.is_integer() else ("number",)
        case str():
            return ("string",)
        case list():
            return ("array",)
        case _:
            return ("object",)
