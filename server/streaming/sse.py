"""Server-sent events as bytes: LF endings, `data: ` with its space, `[DONE]` last (WHATWG HTML 9.2, OpenAI's use)."""

from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from sampling.parts import Part
from server.errors import ServeError
from server.streaming.answer import Usage
from server.streaming.choice import Choice

DONE = b"data: [DONE]\n\n"

# Their UTF-8 begins no other character, and outside strings JSON has no such bytes.
_LINE_BREAKS = tuple((raw.encode(), b"\\u%04x" % ord(raw)) for raw in ("\u2028", "\u2029", "\x85"))


def json_bytes(payload: Any) -> bytes:
    """`payload` as JSON. What Unicode-aware line splitters take for a line end is escaped."""
    encoded = orjson.dumps(payload)
    if not encoded.isascii():
        for raw, escaped in _LINE_BREAKS:
            if raw in encoded:
                encoded = encoded.replace(raw, escaped)
    return encoded


def event(payload: Any) -> bytes:
    """One event with `payload` as its JSON."""
    return b"data: " + json_bytes(payload) + b"\n\n"


def named_event(name: str, payload: Any) -> bytes:
    """One event of a protocol that names its events."""
    return b"event: " + name.encode() + b"\ndata: " + json_bytes(payload) + b"\n\n"


class EventEncoder(Protocol):
    """How one protocol writes a stream. `keep_alive` is what it sends after a silence."""

    keep_alive: bytes

    def delta(self, choice: Choice, parts: Sequence[Part]) -> bytes:
        """New parts of a choice, at least one; unless `choice.opened`, its first."""
        ...

    def finish(self, choice: Choice, timings: dict[str, Any] | None) -> bytes:
        """The end of a choice that has a finish reason; `timings` on the request's last one, when asked for."""
        ...

    def end(self, usage: Usage) -> bytes:
        """What follows the last choice of a stream that ended well."""
        ...

    def error(self, error: ServeError) -> bytes:
        """The end of a stream that failed after its first byte."""
        ...
