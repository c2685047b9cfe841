"""Anthropic's `message`, whole and in events."""

from collections.abc import Sequence
from typing import Any

import orjson

from sampling.parts import Arguments, Part, Reasoning, ToolCall
from server.api.errors import messages_envelope
from server.errors import ServeError
from server.request import FinishReason, GenerationRequest
from server.streaming.answer import Call, Passage, Usage
from server.streaming.choice import Choice
from server.streaming.sse import json_bytes, named_event
from server.streaming.stream import Stream


class MessagesShape:
    def __init__(self, generation: GenerationRequest, model: str) -> None:
        self._request_id = generation.id
        self._prompt_tokens = generation.prompt_tokens
        self._base: dict[str, Any] = {
            "id": f"msg_{generation.id.removeprefix('req-')}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def encoder(self) -> "MessagesEncoder":
        return MessagesEncoder(self._base, self._prompt_tokens, self._request_id)

    def body(self, stream: Stream) -> dict[str, Any]:
        choice = stream.choices[0]
        content = [_block(item) for item in choice.answer.items]
        return _message(self._base, content, _ending(choice), _usage(stream.usage))


class MessagesEncoder:
    """One answer's events. A block is open until a part comes that does not continue it."""

    keep_alive = named_event("ping", {"type": "ping"})

    def __init__(self, base: dict[str, Any], prompt_tokens: int, request_id: str) -> None:
        self._base = base
        self._prompt_tokens = prompt_tokens
        self._request_id = request_id

        # Block state
        self._open: type[Part] | None = None  # what continues the open block
        self._delta_head = b""  # of the open block's deltas, up to their text
        self._index = -1
        self._calls = 0
        self._no_input = False  # the open block is a call without any of its arguments

    def delta(self, choice: Choice, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1 and isinstance(text := parts[0], str) and self._open is str:
            return self._delta(text)
        events = [] if choice.opened else [self._start(choice)]
        events += [self._part(choice, part) for part in parts]
        return b"".join(events)

    def finish(self, choice: Choice, timings: dict[str, Any] | None) -> bytes:
        start = b"" if choice.opened else self._start(choice)
        usage = _usage(self._usage_of(choice))
        counted = {name: usage[name] for name in _DELTA_USAGE}
        end = {"type": "message_delta", "delta": _ending(choice) | {"container": None}, "usage": counted}
        if timings is not None:
            end["timings"] = timings
        return start + self._close() + named_event("message_delta", end)

    def end(self, usage: Usage) -> bytes:
        return _STOP

    def error(self, error: ServeError) -> bytes:
        return named_event("error", messages_envelope(error, self._request_id))

    def _start(self, choice: Choice) -> bytes:
        usage = _usage(Usage(self._prompt_tokens, 0, choice.cached_tokens))
        return named_event(
            "message_start", {"type": "message_start", "message": _message(self._base, [], _NO_ENDING, usage)}
        )

    def _part(self, choice: Choice, part: Part) -> bytes:
        match part:
            case str():
                opened = b"" if self._open is str else self._begin(str, _text_block(""), b"text_delta", b"text")
                return opened + self._delta(part)
            case Reasoning():
                opened = b""
                if self._open is not Reasoning:
                    opened = self._begin(Reasoning, _thinking_block(""), b"thinking_delta", b"thinking")
                return opened + self._delta(part.text)
            case ToolCall():
                call = choice.answer.calls[self._calls]
                self._calls += 1
                opened = self._begin(Arguments, _tool_block(call, {}), b"input_json_delta", b"partial_json")
                self._no_input = True
                return opened
            case Arguments():
                self._no_input = False
                return self._delta(part.text)

    def _delta(self, text: str) -> bytes:
        return b"%b%b}}\n\n" % (self._delta_head, json_bytes(text))

    def _begin(self, continued_by: type[Part], block: dict[str, Any], delta: bytes, field: bytes) -> bytes:
        closed = self._close()
        self._open = continued_by
        self._index += 1
        self._delta_head = _DELTA % (self._index, delta, field)
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        return closed + named_event("content_block_start", start)

    def _close(self) -> bytes:
        """Thoughts end with their signature, and a call has arguments that are JSON when joined."""
        if self._open is None:
            return b""
        last = b""
        if self._open is Reasoning:
            last = _DELTA % (self._index, b"signature_delta", b"signature") + b'""}}\n\n'
        elif self._no_input:
            last = self._delta("{}")
        self._open, self._no_input = None, False
        return last + named_event("content_block_stop", {"type": "content_block_stop", "index": self._index})

    def _usage_of(self, choice: Choice) -> Usage:
        return Usage(self._prompt_tokens, choice.output_tokens, choice.cached_tokens, choice.reasoning_tokens)


_STOP = named_event("message_stop", {"type": "message_stop"})
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
_NO_ENDING = {"stop_reason": None, "stop_sequence": None, "stop_details": None}
_DELTA_USAGE = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
    "server_tool_use",
)


def _message(
    base: dict[str, Any], content: list[dict[str, Any]], ending: dict[str, Any], usage: dict[str, Any]
) -> dict[str, Any]:
    return base | {"content": content} | ending | {"container": None, "usage": usage}


def _block(item: Passage | Call) -> dict[str, Any]:
    if isinstance(item, Call):
        return _tool_block(item, _input(item.arguments))
    return _thinking_block(item.text) if item.thoughts else _text_block(item.text)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


def _thinking_block(text: str) -> dict[str, Any]:
    """Signed by nobody: whoever brings it back may have changed it."""
    return {"type": "thinking", "thinking": text, "signature": ""}


def _tool_block(call: Call, arguments: Any) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": f"toolu_{call.id.removeprefix('call_')}",
        "name": call.name,
        "input": arguments,
        "caller": {"type": "direct"},
    }


def _input(arguments: str) -> Any:
    """An object always; one that the token limit cut, or that the model got wrong, is empty."""
    try:
        parsed = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return {}
    return orjson.Fragment(arguments) if isinstance(parsed, dict) else {}


def _ending(choice: Choice) -> dict[str, Any]:
    if choice.finish_reason is FinishReason.LENGTH:
        reason = "max_tokens"
    elif choice.stop_string is not None:
        reason = "stop_sequence"
    else:
        reason = "tool_use" if choice.answer.calls else "end_turn"
    return {"stop_reason": reason, "stop_sequence": choice.stop_string, "stop_details": None}


def _usage(usage: Usage) -> dict[str, Any]:
    """`input_tokens` are those that were not found in the cache."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": None,
    }
