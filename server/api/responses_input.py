"""What a conversation is made of in the Responses protocol: input items as clients write them, as they are kept, and as
the messages that chat templates know."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from server.api.body import WireModel
from server.api.chat_messages import ToolName
from server.api.content import template_call, text_only
from server.api.responses_items import new_id
from server.errors import InvalidRequest

MAX_ITEMS = 10_000

Item = dict[str, Any]

_TEXT_PARTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")
# What a conversation had elsewhere; its outcome is in the messages that follow.
_IGNORED = frozenset({"reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "mcp_list_tools"})


class ContentPart(WireModel):
    type: Literal["input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"]
    text: str = ""
    refusal: str = ""


TextPart = Annotated[ContentPart, text_only(_TEXT_PARTS)]
Text = str | Annotated[list[TextPart], Field(fail_fast=True)]
GivenId = Annotated[str, Field(max_length=256)]


class InputMessage(WireModel):
    role: Literal["user", "assistant", "system", "developer"]
    content: Text
    id: GivenId | None = None

    def item(self) -> Item:
        text = _joined(self.content)
        part: Item = {"type": "input_text", "text": text}
        if self.role == "assistant":
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        given = self.id or new_id("msg")
        return {"id": given, "type": "message", "status": "completed", "role": self.role, "content": [part]}


class FunctionCall(WireModel):
    call_id: GivenId
    name: ToolName
    arguments: str = ""
    id: GivenId | None = None

    def item(self) -> Item:
        call = {"call_id": self.call_id, "name": self.name, "arguments": self.arguments}
        return {"id": self.id or new_id("fc"), "type": "function_call", "status": "completed", **call}


class FunctionCallOutput(WireModel):
    call_id: GivenId
    output: Text
    id: GivenId | None = None

    def item(self) -> Item:
        told = {"call_id": self.call_id, "output": _joined(self.output)}
        return {"id": self.id or new_id("fco"), "type": "function_call_output", "status": "completed", **told}


class ItemReference(WireModel):
    id: GivenId


class OtherItem(WireModel):
    type: str

    def item(self) -> None:
        """Raises InvalidRequest where leaving it out would change what the model is told."""
        if self.type not in _IGNORED:
            raise InvalidRequest(f"input: this server has no use for items of type `{self.type[:40]}`.", param="input")


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind in ("message", "function_call", "function_call_output", "item_reference"):
        return f"{kind}-item"
    if kind is None and isinstance(item, dict):
        return "message-item" if "role" in item else "item_reference-item" if "id" in item else "message-item"
    return "other-item"


InputItem = Annotated[
    Annotated[InputMessage, Tag("message-item")]
    | Annotated[FunctionCall, Tag("function_call-item")]
    | Annotated[FunctionCallOutput, Tag("function_call_output-item")]
    | Annotated[ItemReference, Tag("item_reference-item")]
    | Annotated[OtherItem, Tag("other-item")],
    Discriminator(_kind),
]
Input = str | Annotated[list[InputItem], Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS)]


def items_of(given: Input, referenced: Callable[[str], Item]) -> list[Item]:
    """Input in its kept form; `referenced` finds an item by its id. Raises InvalidRequest."""
    if isinstance(given, str):
        return [InputMessage(role="user", content=given).item()]
    found: Iterable[Item | None] = (
        referenced(item.id) if isinstance(item, ItemReference) else item.item() for item in given
    )
    return remembered(item for item in found if item is not None)


def remembered(items: Iterable[Item]) -> list[Item]:
    """Of a response's items those that later turns are told of: all but its thoughts."""
    return [item for item in items if item["type"] != "reasoning"]


def messages_of(instructions: str | None, items: Sequence[Item]) -> list[Item]:
    """As chat templates know them; raises InvalidRequest.

    Calls join the assistant's message before them. Instructions and a system message at the start are one message:
    many templates know no second one.
    """
    messages: list[Item] = [{"role": "system", "content": instructions}] if instructions else []
    names: dict[str, str] = {}
    for item in items:
        match item["type"]:
            case "message":
                _add_message(messages, item, first=len(messages) == bool(instructions))
            case "function_call":
                names[item["call_id"]] = item["name"]
                _add_call(messages, item)
            case "function_call_output":
                if item["call_id"] not in names:
                    raise InvalidRequest("input: a function_call_output answers no function_call.", param="input")
                told = {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
                messages.append(told | {"name": names[item["call_id"]]})
    return messages


def _add_message(messages: list[Item], item: Mapping[str, Any], *, first: bool) -> None:
    role = "system" if item["role"] == "developer" else item["role"]
    text = "".join(part["text"] for part in item["content"])
    if first and messages and role == "system":
        messages[0]["content"] += f"\n\n{text}"
    else:
        messages.append({"role": role, "content": text})


def _add_call(messages: list[Item], item: Mapping[str, Any]) -> None:
    call = template_call(item["call_id"], item["name"], item["arguments"], "input")
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    messages[-1].setdefault("tool_calls", []).append(call)


def _joined(content: str | Sequence[ContentPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text or part.refusal for part in content)
