"""Server-sent events as bytes: LF endings, `data: ` with its space, `[DONE]` last (WHATWG HTML 9.2, OpenAI's use)."""

from typing import Any, Protocol

import orjson

from server.errors import ServeError
from server.request import FinishReason

DONE = b"data: [DONE]\n\n"

_LINE_BREAKS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


def json_string(text: str) -> bytes:
    """`text` as a JSON string. What Unicode-aware line splitters take for a line end is escaped."""
    encoded = orjson.dumps(text)
    if not text.isascii():
        for raw, escaped in _LINE_BREAKS:
            if raw in text:
                encoded = encoded.replace(raw.encode(), escaped.encode())
    return encoded


def event(payload: Any) -> bytes:
    """One event with `payload` as its JSON."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


class EventEncoder(Protocol):
    """How one protocol writes a stream. Stateless per call but for constant parts encoded once per request."""

    def delta(self, index: int, text: str, *, first: bool) -> bytes:
        """New text of choice `index`; `first` for that choice's first event."""
        ...

    def finish(self, index: int, reason: FinishReason, *, first: bool, timings: dict[str, Any] | None) -> bytes:
        """The choice's last event; `timings` only on the request's last choice and only when asked for."""
        ...

    def end(self, prompt_tokens: int, output_tokens: int) -> bytes:
        """What follows the last choice of a stream that ended well."""
        ...

    def error(self, error: ServeError) -> bytes:
        """The end of a stream that failed after its first byte."""
        ...
