"""Messages and tools of the chat protocol, as clients write them and as chat templates know them."""

from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from sampling.params import Structured
from sampling.structured import StructuredError, schema_text
from server.api.body import WireModel
from server.api.conversation import MAX_TOOLS, Named, Tool, ToolChoice
from server.errors import InvalidRequest

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


def text_only(part: Any) -> Any:
    """Images, audio and files get an answer that says why, before their shape is looked at."""
    if isinstance(part, dict) and isinstance(kind := part.get("type"), str):
        if kind == "refusal":  # what an assistant refused with is what it said
            return {"type": "text", "text": part.get("refusal")}
        if kind != "text":
            message = "this server takes text only, it has no use for {kind}"
            raise PydanticCustomError("text_only", message, {"kind": kind[:40]})
    return part


class TextPart(WireModel):
    type: Literal["text"]
    text: str


Content = str | Annotated[list[Annotated[TextPart, BeforeValidator(text_only)]], Field(fail_fast=True)]


class FunctionCall(WireModel):
    name: ToolName
    arguments: str | None = None


class MessageToolCall(WireModel):
    id: str | None = Field(default=None, max_length=1024)
    type: Literal["function"] = "function"
    function: FunctionCall

    def for_template(self) -> dict[str, Any]:
        """Templates want the arguments as an object; raises InvalidRequest."""
        try:
            arguments = orjson.loads(self.function.arguments or "{}")
        except orjson.JSONDecodeError:
            arguments = None
        if not isinstance(arguments, dict):
            raise InvalidRequest("messages: the arguments of a tool call must be a JSON object.", param="messages")
        return {"id": self.id, "type": "function", "function": {"name": self.function.name, "arguments": arguments}}


class Message(WireModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: Annotated[list[MessageToolCall], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    def for_template(self) -> dict[str, Any]:
        """As chat templates know it: text parts joined, OpenAI's `developer` under its older name."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())
        message: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": text}
        if self.name:
            message["name"] = self.name
        if self.tool_calls and self.role == "assistant":
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        if self.tool_call_id and self.role == "tool":
            message["tool_call_id"] = self.tool_call_id
        if thoughts := self.reasoning_content or self.reasoning:
            message["reasoning_content"] = thoughts
        return message


class FunctionTool(WireModel):
    name: ToolName
    description: str | None = Field(default=None, max_length=65_536)
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatTool(WireModel):
    type: Literal["function"]
    function: FunctionTool

    def tool(self) -> Tool:
        return Tool(self.function.name, self.function.description, self.function.parameters)


class NamedFunction(WireModel):
    name: ToolName


class NamedToolChoice(WireModel):
    type: Literal["function"] = "function"
    function: NamedFunction


def tool_choice(given: str | NamedToolChoice | None) -> ToolChoice:
    match given:
        case NamedToolChoice():
            return Named(given.function.name)
        case "none" | "required":
            return given
    return "auto"


class JsonSchemaFormat(WireModel):
    name: str = Field(min_length=1, max_length=64)
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(WireModel):
    """`strict` or not, an answer conforms to its schema."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None
    structures: Any = None
    triggers: Any = None
    format: Any = None

    def constraint(self) -> Structured | None:
        """Raises InvalidRequest."""
        try:
            match self.type:
                case "json_object":
                    return Structured("json_object")
                case "json_schema":
                    if self.json_schema is None or self.json_schema.schema_ is None:
                        raise StructuredError("a schema is missing.")
                    return Structured("json", schema_text(self.json_schema.schema_))
                case "structural_tag":
                    tag = self.model_dump(include={"type", "structures", "triggers", "format"}, exclude_none=True)
                    return Structured("structural_tag", schema_text(tag))
        except StructuredError as error:
            raise InvalidRequest(f"response_format: {error}", param="response_format") from None
        return None
