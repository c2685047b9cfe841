"""Checks that the chat-like protocols have in common on what they are sent."""

from collections.abc import Collection
from typing import Any

import orjson
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from sampling.params import Structured
from sampling.structured import StructuredError, schema_text
from server.errors import InvalidRequest


def text_only(kinds: Collection[str]) -> BeforeValidator:
    """Images, audio and files get an answer that says why, before their shape is looked at."""

    def check(part: Any) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind not in kinds:
            message = "this server takes text only; it has no use for {kind}"
            raise PydanticCustomError("text_only", message, {"kind": kind[:40]})
        return part

    return BeforeValidator(check)


def template_call(call_id: str | None, name: str, arguments: str, param: str) -> dict[str, Any]:
    """A call as chat templates know it: they want the arguments as an object. Raises InvalidRequest."""
    try:
        parsed = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidRequest(f"{param}: the arguments of a call must be a JSON object.", param=param)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": parsed}}


def format_constraint(kind: str, schema: dict[str, Any] | None, param: str) -> Structured | None:
    """Of a format `text`, `json_object` or one with a schema, named by its own kind; raises InvalidRequest."""
    if kind == "text":
        return None
    if kind == "json_object":
        return Structured("json_object")
    try:
        if schema is None:
            raise StructuredError("a schema is missing.")
        return Structured("structural_tag" if kind == "structural_tag" else "json", schema_text(schema))
    except StructuredError as error:
        raise InvalidRequest(f"{param}: {error}", param=param) from None
