"""The response object, whole and as the events that lead to it."""

from collections.abc import Callable, Sequence
from time import time
from typing import Any

from sampling.logprobs import Released
from sampling.parts import Part
from server.api.logprobs import TokenNames
from server.api.responses_items import Events, MessageItem, OutputItem, item_for
from server.errors import ResponseCancelled, ServeError
from server.request import FinishReason, GenerationRequest
from server.streaming.answer import Usage
from server.streaming.choice import Choice
from server.streaming.outbox import KEEP_ALIVE
from server.streaming.sse import named_event

Keep = Callable[[dict[str, Any]], None]
"""Takes the response object of an end, good or bad."""

Response = dict[str, Any]

ENDS = ("response.completed", "response.incomplete", "response.failed")


class Collector:
    """Gathers a response's items. It encodes nothing: `Writer` does."""

    keep_alive = KEEP_ALIVE

    def __init__(
        self,
        generation: GenerationRequest,
        model: str,
        names: TokenNames,
        echo: dict[str, Any],
        keep: Keep | None = None,
    ) -> None:
        params = generation.params
        self.id = f"resp_{generation.id.removeprefix('req-')}"
        self._base: Response = {
            "id": self.id,
            "object": "response",
            "created_at": int(time()),
            "model": model,
            "temperature": 1.0 if params.temperature is None else params.temperature,
            "top_p": 1.0 if params.top_p is None else params.top_p,
            "presence_penalty": params.presence_penalty,
            "frequency_penalty": params.frequency_penalty,
            **echo,
        }
        self._names = names if params.logprobs is not None else None
        self._keep = keep
        self._items: list[OutputItem] = []
        self._last_status = "completed"
        self._timings: dict[str, Any] = {}
        self.final: Response | None = None

    def now(self, status: str) -> Response:
        """The response object before its end."""
        return self._object(status)

    def delta(self, choice: Choice, parts: Sequence[Part]) -> bytes:
        events = b""
        for part in parts:
            item = self._items[-1] if self._items else None
            if item is None or not item.takes(part):
                events += self._close(item) if item is not None else b""
                item = item_for(part, len(self._items), choice.answer.calls, self._items)
                self._items.append(item)
                events += self._tell(item.opening())
            if text := part if isinstance(part, str) else getattr(part, "text", ""):
                item.pieces.append(text)
                events += self._grow(choice, item, text)
        choice.released = Released()  # what is left of it belongs to no text
        return events

    def finish(self, choice: Choice, timings: dict[str, Any] | None) -> bytes:
        if choice.finish_reason is FinishReason.LENGTH:
            self._last_status = "incomplete"
        if timings is not None:
            self._timings = {"timings": timings}
        events = b"" if self._items else self.delta(choice, ("",))
        if self._names is not None and isinstance(self._items[-1], MessageItem):
            self._items[-1].logprobs += self._logprobs(choice, self._names)
        return events + self._close(self._items[-1], self._last_status)

    def end(self, usage: Usage) -> bytes:
        incomplete = self._last_status == "incomplete"
        final = self._object(
            self._last_status,
            output=self._output(),
            usage=usage_of(usage),
            completed_at=None if incomplete else int(time()),
            incomplete_details={"reason": "max_output_tokens"} if incomplete else None,
        )
        return self._end(f"response.{self._last_status}", final)

    def error(self, error: ServeError) -> bytes:
        self._last_status = "incomplete"
        if isinstance(error, ResponseCancelled):
            return self._end("response.incomplete", self._object("cancelled", output=self._output()))
        told = {"code": error.code or "server_error", "message": error.message}
        return self._end("response.failed", self._object("failed", output=self._output(), error=told))

    def _end(self, kind: str, final: Response) -> bytes:
        self.final = final
        if self._keep is not None:
            self._keep(final)
        return self._tell([(kind, {"response": final | self._timings})])

    def _object(self, status: str, **known: Any) -> Response:
        unknown = dict.fromkeys(("completed_at", "error", "incomplete_details", "usage"))
        return self._base | {"status": status, "output": []} | unknown | known

    def _output(self) -> list[dict[str, Any]]:
        last = len(self._items) - 1
        return [item.as_json(self._last_status if item.index == last else "completed") for item in self._items]

    def _grow(self, choice: Choice, item: OutputItem, text: str) -> bytes:
        if self._names is None or not isinstance(item, MessageItem):
            return self._delta(item, text, None)
        logprobs = self._logprobs(choice, self._names)
        item.logprobs += logprobs
        return self._delta(item, text, logprobs)

    def _logprobs(self, choice: Choice, names: TokenNames) -> list[dict[str, Any]]:
        """Of the tokens that the step released, taken along by its first text."""
        released, choice.released = choice.released, Released()
        found: list[dict[str, Any]] = names.chat(released.logprobs)["content"]
        return found

    def _close(self, item: OutputItem, status: str = "completed") -> bytes:
        return self._tell(item.closing(status))

    def _delta(self, item: OutputItem, text: str, logprobs: list[dict[str, Any]] | None) -> bytes:
        return b""

    def _tell(self, events: Events) -> bytes:
        return b""


class Writer(Collector):
    """The same as events, numbered from 0, in the order that clients index their copy of the response by."""

    _number = 0
    _in_progress = False

    def queued(self) -> bytes:
        """The first events of a response that runs in the background."""
        response = {"response": self.now("queued")}
        return self._numbered([("response.created", response), ("response.queued", response)])

    def _delta(self, item: OutputItem, text: str, logprobs: list[dict[str, Any]] | None) -> bytes:
        number, self._number = self._number, self._number + 1
        if logprobs is not None and isinstance(item, MessageItem):
            return item.delta_with(number, text, logprobs)
        return item.delta(number, text)

    def _tell(self, events: Events) -> bytes:
        if self._in_progress:
            return self._numbered(events)
        beginning = ["response.created"] if self._number == 0 else []
        if not beginning and events[0][0] in ENDS:
            return self._numbered(events)  # queued to the last
        self._in_progress = True
        response = {"response": self.now("in_progress")}
        return self._numbered([(kind, response) for kind in (*beginning, "response.in_progress")] + events)

    def _numbered(self, events: Events) -> bytes:
        told = []
        for kind, fields in events:
            told.append(named_event(kind, {"type": kind, "sequence_number": self._number, **fields}))
            self._number += 1
        return b"".join(told)


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
