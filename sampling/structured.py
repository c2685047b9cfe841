"""What a client may ask its output to conform to, bounded: a grammar is compiled in the engine all requests share."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_CHARACTERS = 65_536  # of a schema or grammar
MAX_REGEX = 2_048
MAX_CHOICES = 1_024
MAX_DEPTH = 48
MAX_NODES = 32_768  # of a schema: more have no room within MAX_CHARACTERS
MAX_REPEATS = 1_024  # of an item, a character or a group: each is a state of the automaton

_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_VALUES = frozenset({"enum", "const", "default", "examples"})  # keywords that hold values, not schemas
_REPEAT = re.compile(r"\{(\d*),?(\d*)\}")


class StructuredError(ValueError):
    """The constraint cannot be used; the message is written for the client."""


def schema_text(schema: Any) -> str:
    """A JSON schema as text, checked; raises StructuredError."""
    if not isinstance(schema, dict | bool):
        raise StructuredError("A schema must be a JSON object.")
    for count, (depth, node) in enumerate(_walk(schema)):
        if count > MAX_NODES:
            raise StructuredError(f"The schema has more than {MAX_NODES} parts.")
        if depth > MAX_DEPTH:
            raise StructuredError(f"The schema is nested more than {MAX_DEPTH} deep.")
        if isinstance(node, dict):
            _check_node(node)
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise StructuredError("A schema's numbers must be finite.") from None
    return bounded(text)


def calls_schema(tools: Mapping[str, Any], *, most: int | None) -> dict[str, Any]:
    """Of an array of calls of these tools, by name, each with its parameters' schema.

    A tool's schema stands below `$defs`, and its references to itself point there. Raises StructuredError.
    """
    for schema in tools.values():
        schema_text(schema)  # bounds the depth that is walked below
    definitions = {name: _moved(schema, f"#/$defs/{name}") for name, schema in tools.items()}
    calls = {"type": "array", "minItems": 1, "items": {"anyOf": [_call(name) for name in tools]}}
    return calls | ({} if most is None else {"maxItems": most}) | {"$defs": definitions}


def _call(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"type": "string", "const": name}, "parameters": {"$ref": f"#/$defs/{name}"}},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def _moved(node: Any, place: str) -> Any:
    """A schema for use at `place`, where what it calls `#` then is."""
    if isinstance(node, list):
        return [_moved(child, place) for child in node]
    if not isinstance(node, dict):
        return node
    moved = {key: child if key in _VALUES else _moved(child, place) for key, child in node.items()}
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = place + reference[1:]
    return moved


def bounded(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Raises StructuredError for a text that is blank or longer than `limit` characters."""
    if not text.strip():
        raise StructuredError("The constraint is empty.")
    if len(text) > limit:
        raise StructuredError(f"The constraint is longer than {limit} characters.")
    return text


def regex(pattern: str) -> str:
    """Raises StructuredError for one that is too long or repeats too often; whether it is a regex the engine tells."""
    if not pattern or len(pattern) > MAX_REGEX:
        raise StructuredError(f"A regex has 1 to {MAX_REGEX} characters.")
    if any(int(count or 0) > MAX_REPEATS for match in _REPEAT.finditer(pattern) for count in match.groups()):
        raise StructuredError(f"A regex may repeat a part at most {MAX_REPEATS} times.")
    return pattern


def choices(options: list[str]) -> tuple[str, ...]:
    """Raises StructuredError unless there are some, each with text."""
    if not options or len(options) > MAX_CHOICES or not all(options):
        raise StructuredError(f"Give 1 to {MAX_CHOICES} choices, none of them empty.")
    if sum(map(len, options)) > MAX_CHARACTERS:
        raise StructuredError(f"The choices are longer than {MAX_CHARACTERS} characters.")
    return tuple(options)


def _check_node(node: dict[str, Any]) -> None:
    for name in _COUNTS & node.keys():
        count = node[name]
        if isinstance(count, int | float) and count > MAX_REPEATS:
            raise StructuredError(f"{name} may be at most {MAX_REPEATS}.")
    pattern = node.get("pattern")
    if isinstance(pattern, str) and pattern:
        regex(pattern)


def _walk(schema: Any) -> Iterator[tuple[int, Any]]:
    pending = [(1, schema)]
    while pending:
        depth, node = pending.pop()
        yield depth, node
        if isinstance(node, dict | list) and len(node) > MAX_NODES:
            raise StructuredError(f"The schema has more than {MAX_NODES} parts.")
        if isinstance(node, dict):
            pending += [(depth + 1, child) for key, child in node.items() if key not in _VALUES]
        elif isinstance(node, list):
            pending += [(depth + 1, child) for child in node]
