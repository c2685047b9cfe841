"""What the answers of OpenAI's chat and completions protocols have in common."""

from time import time
from typing import Any

import orjson

from server.api.errors import envelope
from server.errors import ServeError
from server.streaming.sse import DONE, event
from server.streaming.stream import Stream


class OpenAIShape:
    """An answer's JSON, whole or in chunks; constant parts of a chunk are encoded once per request.

    `chunk_end` closes a chunk's one choice after what is particular to the protocol.
    """

    def __init__(self, answer_id: str, kind: str, model: str, *, include_usage: bool, chunk_end: bytes) -> None:
        self._base: dict[str, Any] = {"id": answer_id, "object": kind, "created": int(time()), "model": model}
        self._include_usage = include_usage
        self._head = b"data: " + orjson.dumps(self._base)[:-1] + b',"choices":[{"index":'
        no_usage = b',"usage":null' if include_usage else b""
        self._tail = chunk_end + b',"logprobs":null,"finish_reason":null}]' + no_usage + b"}\n\n"

    def end(self, prompt_tokens: int, output_tokens: int) -> bytes:
        if not self._include_usage:
            return DONE
        return event(self._base | {"choices": [], "usage": _usage(prompt_tokens, output_tokens)}) + DONE

    def error(self, error: ServeError) -> bytes:
        return event(envelope(error)) + DONE

    def _last_chunk(self, choice: dict[str, Any], timings: dict[str, Any] | None) -> bytes:
        chunk = self._base | {"choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        if timings is not None:
            chunk["timings"] = timings
        return event(chunk)

    def _whole(self, stream: Stream, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        usage = _usage(stream.request.prompt_tokens, stream.ledger.output_tokens)
        return self._base | {"object": kind, "choices": choices, "usage": usage}


def _usage(prompt_tokens: int, output_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
    }
