"""The three protocols of OpenAI: where a request goes, what it says, and how the events of its answer are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from bench.client import ResponseReader
from bench.run.prompt_files import Message
from bench.run.spec import Endpoint, Spec
from bench.sample import NO_CHOICE, RequestSample, StreamEvent

# Fields that are not OpenAI's; they are sent only where the Spec asks for them.
EXTENSIONS = ("ignore_eos", "include_timings")


class TypedEventReader(ResponseReader):
    """Reads the Responses protocol, whose events say their type; the one that ends it has the usage, no [DONE] follows.

    https://platform.openai.com/docs/api-reference/responses-streaming
    """

    def take(self, event: dict[str, Any], stamp_ns: int) -> None:
        kind = event.get("type")
        if not isinstance(kind, str):
            self.fail("protocol", "an event without a type")
        elif kind.endswith(".delta"):
            self._take_delta(kind, event.get("delta"), stamp_ns)
        elif kind in _ENDS:
            _ENDS[kind](self, event.get("response") or {}, stamp_ns)
        elif kind == "error":
            self.fail("error event", orjson.dumps(event).decode())
        else:
            generated = _names_a_function(kind, event)
            self.sample.events.append(StreamEvent(stamp_ns, 0 if generated else NO_CHOICE, generated, None))

    def _take_delta(self, kind: str, delta: Any, stamp_ns: int) -> None:
        self.sample.events.append(StreamEvent(stamp_ns, 0, bool(delta), None))
        if kind == "response.output_text.delta" and delta:
            self._texts.setdefault(0, []).append(delta)

    def _completed(self, response: dict[str, Any], stamp_ns: int) -> None:
        self._end(response, "stop", stamp_ns)

    def _incomplete(self, response: dict[str, Any], stamp_ns: int) -> None:
        reason = (response.get("incomplete_details") or {}).get("reason")
        if reason != "max_output_tokens":
            self.fail("incomplete", str(reason or response.get("status")))
        self._end(response, "length", stamp_ns)

    def _failed(self, response: dict[str, Any], stamp_ns: int) -> None:
        self.fail("error event", orjson.dumps(response.get("error")).decode())

    def _end(self, response: dict[str, Any], finish_reason: str, stamp_ns: int) -> None:
        usage = response.get("usage") or {}
        self.sample.events.append(StreamEvent(stamp_ns, 0, False, finish_reason))
        self.sample.prompt_tokens = usage.get("input_tokens")
        self.sample.output_tokens = usage.get("output_tokens")
        self.sample.timings = response.get("timings")
        self.sample.done_ns = stamp_ns


def _names_a_function(kind: str, event: dict[str, Any]) -> bool:
    """The name is the first of a call that was generated."""
    return kind == "response.output_item.added" and (event.get("item") or {}).get("type") == "function_call"


_ENDS: dict[str, Callable[[TypedEventReader, dict[str, Any], int], None]] = {
    "response.completed": TypedEventReader._completed,
    "response.incomplete": TypedEventReader._incomplete,
    "response.failed": TypedEventReader._failed,
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """`path` follows the server's root. `fields` makes of messages and a token limit what is particular to a body."""

    path: str
    fields: Callable[[Sequence[Message], int], dict[str, Any]]
    reader: type[ResponseReader] = ResponseReader

    def body(self, spec: Spec, messages: Sequence[Message], output_tokens: int) -> bytes:
        fields = {"model": spec.model, **self.fields(messages, output_tokens), "temperature": spec.temperature}
        extensions = {name: True for name in EXTENSIONS if getattr(spec, name)}
        return orjson.dumps(fields | {"stream": True} | extensions)


def _chat(messages: Sequence[Message], output_tokens: int) -> dict[str, Any]:
    return {"messages": messages, "max_tokens": output_tokens, "stream_options": {"include_usage": True}}


def _completion(messages: Sequence[Message], output_tokens: int) -> dict[str, Any]:
    prompt = "\n".join(message["content"] for message in messages)
    return {"prompt": prompt, "max_tokens": output_tokens, "stream_options": {"include_usage": True}}


def _response(messages: Sequence[Message], output_tokens: int) -> dict[str, Any]:
    return {"input": messages, "max_output_tokens": output_tokens, "store": False}


DIALECTS: dict[Endpoint, Dialect] = {
    "chat": Dialect("/v1/chat/completions", _chat),
    "completions": Dialect("/v1/completions", _completion),
    "responses": Dialect("/v1/responses", _response, TypedEventReader),
}


def hopeless(sample: RequestSample) -> str | None:
    """Why no request like this one can succeed, if its refusal says so: who asks, for what, or with which field."""
    if sample.status in (401, 403, 404, 405):
        return f"the server refuses every such request: HTTP {sample.status}: {sample.detail}"
    named = [name for name in EXTENSIONS if name in sample.detail]
    if sample.status in (400, 422) and named:
        return f"the server doesn't know {' and '.join(named)}; leave it out: HTTP {sample.status}: {sample.detail}"
    return None
