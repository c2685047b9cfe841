"""`chat.completion`, whole and in chunks."""

from collections.abc import Sequence
from typing import Any

from sampling.logprobs import Released
from sampling.parts import Arguments, Part, Reasoning, ToolCall
from server.api.logprobs import TokenNames
from server.api.openai_shape import Extras, OpenAIShape
from server.request import FinishReason, GenerationRequest
from server.streaming.answer import Call
from server.streaming.choice import Choice
from server.streaming.sse import json_bytes
from server.streaming.stream import Stream


class ChatShape(OpenAIShape):
    def __init__(
        self,
        generation: GenerationRequest,
        model: str,
        names: TokenNames,
        *,
        extras: Extras,
        reasoning_field: str = "reasoning",
    ) -> None:
        super().__init__(
            f"chatcmpl-{generation.id.removeprefix('req-')}",
            "chat.completion.chunk",
            model,
            prompt_tokens=generation.prompt_tokens,
            extras=extras,
            chunk_end=b"}",
        )
        self._prompt = generation.prompts[0]
        self._names = names
        self._thoughts = ("reasoning", "reasoning_content") if reasoning_field == "both" else (reasoning_field,)

    def encoder(self) -> "ChatShape":
        return self

    def delta(self, choice: Choice, parts: Sequence[Part]) -> bytes:
        if len(parts) == 1 and isinstance(parts[0], str) and not self._extras.per_token:
            start = b',"delta":{"content":' if choice.opened else b',"delta":{"role":"assistant","content":'
            return b"%b%d%b%b%b" % (self._head, choice.index, start, json_bytes(parts[0]), self._tail)
        events = []
        call = len(choice.answer.calls) - sum(isinstance(part, ToolCall) for part in parts) - 1
        for position, part in enumerate(parts):
            call += isinstance(part, ToolCall)
            delta = self._delta(part, choice.answer.calls, call)
            if position == 0 and not choice.opened:
                delta = {"role": "assistant", "content": None} | delta
            events.append(self._event(choice, delta, first=position == 0))
        return b"".join(events)

    def finish(self, choice: Choice, timings: dict[str, Any] | None) -> bytes:
        delta = {} if choice.opened else {"role": "assistant", "content": ""}
        return self._event(choice, delta, first=True, reason=_reason(choice), timings=timings)

    def body(self, stream: Stream) -> dict[str, Any]:
        whole = self._whole(stream, "chat.completion", [self._message(choice) for choice in stream.choices])
        if self._extras.token_ids:
            whole["prompt_token_ids"] = list(self._prompt)
        if (entries := stream.choices[0].prompt_logprobs) is not None:
            whole["prompt_logprobs"] = self._names.prompt(entries)
        return whole

    def _delta(self, part: Part, calls: list[Call], index: int) -> dict[str, Any]:
        match part:
            case str():
                return {"content": part}
            case Reasoning():
                return dict.fromkeys(self._thoughts, part.text)
            case ToolCall():
                function = {"name": part.name, "arguments": ""}
                return {
                    "tool_calls": [{"index": index, "id": calls[index].id, "type": "function", "function": function}]
                }
            case Arguments():
                return {"tool_calls": [{"index": index, "function": {"arguments": part.text}}]}

    def _event(
        self,
        choice: Choice,
        delta: dict[str, Any],
        *,
        first: bool,
        reason: str | None = None,
        timings: dict[str, Any] | None = None,
    ) -> bytes:
        """A chunk; the first of a step takes the step's tokens along."""
        content = {"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": reason}
        if first:
            self._add_tokens(content, choice.released)
            choice.released = Released()
        return self._chunk(choice, content, timings, self._prompt_ids(choice) if first else None)

    def _prompt_ids(self, choice: Choice) -> dict[str, Any] | None:
        if not self._extras.token_ids or choice.opened or choice.index:
            return None
        return {"prompt_token_ids": list(self._prompt)}

    def _add_tokens(self, content: dict[str, Any], released: Released) -> None:
        if self._extras.logprobs is not None and released.logprobs:
            content["logprobs"] = self._names.chat(released.logprobs)
        if self._extras.token_ids:
            content["token_ids"] = released.ids

    def _message(self, choice: Choice) -> dict[str, Any]:
        answer = choice.answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None, "annotations": []}
        if answer.reasoning:
            message |= dict.fromkeys(self._thoughts, answer.reasoning)
        if answer.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in answer.calls
            ]
        content = {"index": choice.index, "message": message, "logprobs": None, "finish_reason": _reason(choice)}
        self._add_tokens(content, answer.tokens)
        if self._extras.logprobs is not None and content["logprobs"] is None:
            content["logprobs"] = self._names.chat(())
        return content


def _reason(choice: Choice) -> str | None:
    """A call ends the turn with a reason of its own; one cut by the token limit stays cut."""
    if choice.finish_reason is FinishReason.STOP and choice.answer.calls:
        return "tool_calls"
    return choice.finish_reason
