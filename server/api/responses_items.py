"""What a response consists of: output items, each with the events that open it, make it grow and close it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import uuid4

from sampling.parts import Arguments, Part, Reasoning, ToolCall
from server.streaming.answer import Call
from server.streaming.sse import json_bytes

Events = list[tuple[str, dict[str, Any]]]
"""Types of events, each with what it carries beside its type and its number."""


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex}"


class OutputItem(ABC):
    """`index` is its place in the response's output. A delta's constant parts are encoded once per item."""

    prefix: ClassVar[str]
    delta_type: ClassVar[str]
    delta_end: ClassVar[bytes] = b"}\n\n"

    def __init__(self, index: int) -> None:
        self.id = new_id(self.prefix)
        self.index = index
        self.place: dict[str, Any] = {"item_id": self.id, "output_index": index}
        self.pieces: list[str] = []
        self._head = b'event: %b\ndata: {"type":"%b","sequence_number":' % ((self.delta_type.encode(),) * 2)
        self._middle = b"," + json_bytes(self._delta_place())[1:-1] + b',"delta":'

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def delta(self, number: int, text: str) -> bytes:
        """The event numbered `number`, by which `text` is added."""
        return b"%b%d%b%b%b" % (self._head, number, self._middle, json_bytes(text), self.delta_end)

    @abstractmethod
    def takes(self, part: Part) -> bool:
        """Whether `part` belongs to this item; otherwise it begins another one."""

    @abstractmethod
    def as_json(self, status: str) -> dict[str, Any]:
        """The whole item."""

    @abstractmethod
    def opening(self) -> Events: ...

    @abstractmethod
    def closing(self, status: str) -> Events: ...

    def _delta_place(self) -> dict[str, Any]:
        return self.place


class ContentItem(OutputItem):
    """An item whose text is its one content part."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.part_place = self.place | {"content_index": 0}

    def opening(self) -> Events:
        return [
            ("response.output_item.added", {"output_index": self.index, "item": self._empty()}),
            ("response.content_part.added", self.part_place | {"part": self._part("")}),
        ]

    def closing(self, status: str) -> Events:
        part = self._part(self.text)
        done = {name: value for name, value in part.items() if name in ("text", "logprobs")}
        return [
            (self.delta_type.removesuffix("delta") + "done", self.part_place | done),
            ("response.content_part.done", self.part_place | {"part": part}),
            ("response.output_item.done", {"output_index": self.index, "item": self.as_json(status)}),
        ]

    @abstractmethod
    def _part(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _empty(self) -> dict[str, Any]:
        """The item before it has any content."""

    def _delta_place(self) -> dict[str, Any]:
        return self.place | {"content_index": 0}


class MessageItem(ContentItem):
    prefix = "msg"
    delta_type = "response.output_text.delta"
    delta_end = b',"logprobs":[]}\n\n'

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.logprobs: list[dict[str, Any]] = []

    def takes(self, part: Part) -> bool:
        return isinstance(part, str)

    def delta_with(self, number: int, text: str, logprobs: Sequence[dict[str, Any]]) -> bytes:
        """As `delta`, with the log probabilities of the text's tokens."""
        end = b',"logprobs":' + json_bytes(logprobs) + b"}\n\n"
        return self.delta(number, text).removesuffix(self.delta_end) + end

    def as_json(self, status: str) -> dict[str, Any]:
        return self._empty() | {"status": status, "content": [self._part(self.text)]}

    def _part(self, text: str) -> dict[str, Any]:
        logprobs = self.logprobs if text else []
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _empty(self) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}


class ReasoningItem(ContentItem):
    prefix = "rs"
    delta_type = "response.reasoning_text.delta"

    def takes(self, part: Part) -> bool:
        return isinstance(part, Reasoning)

    def as_json(self, status: str) -> dict[str, Any]:
        return self._empty() | {"content": [self._part(self.text)]}

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": text}

    def _empty(self) -> dict[str, Any]:
        return {"id": self.id, "type": "reasoning", "summary": [], "content": []}


class CallItem(OutputItem):
    prefix = "fc"
    delta_type = "response.function_call_arguments.delta"

    def __init__(self, index: int, call: Call) -> None:
        super().__init__(index)
        self._call = call

    def takes(self, part: Part) -> bool:
        return isinstance(part, Arguments)

    def as_json(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self._call.id,
            "name": self._call.name,
            "arguments": self.text,
        }

    def opening(self) -> Events:
        return [("response.output_item.added", {"output_index": self.index, "item": self.as_json("in_progress")})]

    def closing(self, status: str) -> Events:
        done = self.place | {"name": self._call.name, "arguments": self.text}
        return [
            ("response.function_call_arguments.done", done),
            ("response.output_item.done", {"output_index": self.index, "item": self.as_json(status)}),
        ]


def item_for(part: Part, index: int, calls: Sequence[Call], earlier: Sequence[OutputItem]) -> OutputItem:
    """The item that `part` begins; the calls of an answer are its ToolCalls in order."""
    match part:
        case str():
            return MessageItem(index)
        case Reasoning():
            return ReasoningItem(index)
        case ToolCall() | Arguments():
            return CallItem(index, calls[sum(isinstance(item, CallItem) for item in earlier)])
