"""What the answers of OpenAI's chat and completions protocols have in common."""

from dataclasses import dataclass
from time import time
from typing import Any

import orjson

from server.api.errors import envelope
from server.errors import ServeError
from server.streaming.answer import Usage
from server.streaming.choice import Choice
from server.streaming.outbox import KEEP_ALIVE
from server.streaming.sse import DONE, event
from server.streaming.stream import Stream


@dataclass(frozen=True, slots=True)
class Extras:
    """What a client asked to have told beside the answer itself."""

    usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None  # alternatives per token
    token_ids: bool = False

    @property
    def per_token(self) -> bool:
        """A chunk then differs in more than its text."""
        return self.continuous_usage or self.logprobs is not None or self.token_ids


class OpenAIShape:
    """An answer's JSON, whole or in chunks; constant parts of a chunk are encoded once per request.

    `chunk_end` closes a chunk's one choice after what is particular to the protocol.
    """

    keep_alive = KEEP_ALIVE

    def __init__(
        self, answer_id: str, kind: str, model: str, *, prompt_tokens: int, extras: Extras, chunk_end: bytes
    ) -> None:
        self._base: dict[str, Any] = {"id": answer_id, "object": kind, "created": int(time()), "model": model}
        self._prompt_tokens = prompt_tokens
        self._extras = extras
        self._head = b"data: " + orjson.dumps(self._base)[:-1] + b',"choices":[{"index":'
        no_usage = b',"usage":null' if extras.usage else b""
        self._tail = chunk_end + b',"logprobs":null,"finish_reason":null}]' + no_usage + b"}\n\n"

    def end(self, usage: Usage) -> bytes:
        if not self._extras.usage:
            return DONE
        return event(self._base | {"choices": [], "usage": usage_of(usage)}) + DONE

    def error(self, error: ServeError) -> bytes:
        return event(envelope(error)) + DONE

    def _chunk(
        self,
        choice: Choice,
        content: dict[str, Any],
        timings: dict[str, Any] | None = None,
        beside: dict[str, Any] | None = None,
    ) -> bytes:
        chunk = self._base | {"choices": [content]} | (beside or {})
        if self._extras.continuous_usage:
            chunk["usage"] = usage_of(
                Usage(self._prompt_tokens, choice.output_tokens, choice.cached_tokens, choice.reasoning_tokens)
            )
        elif self._extras.usage:
            chunk["usage"] = None
        if timings is not None:
            chunk["timings"] = timings
        return event(chunk)

    def _whole(self, stream: Stream, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._base | {"object": kind, "choices": choices, "usage": usage_of(stream.usage)}


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
