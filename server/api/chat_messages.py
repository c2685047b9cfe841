"""Messages and tools of the chat protocol, as clients write them and as chat templates know them."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from sampling.params import Structured
from server.api.body import WireModel
from server.api.content import format_constraint, template_call, text_only
from server.api.conversation import MAX_TOOLS, Named, Tool, ToolChoice

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


def _said(part: Any) -> Any:
    """What an assistant refused with is what it said."""
    if isinstance(part, dict) and part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    return part


class TextPart(WireModel):
    type: Literal["text"]
    text: str


_PARTS = ("text", "refusal")
Content = str | Annotated[list[Annotated[TextPart, BeforeValidator(_said), text_only(_PARTS)]], Field(fail_fast=True)]


class FunctionCall(WireModel):
    name: ToolName
    arguments: str | None = None


class MessageToolCall(WireModel):
    id: str | None = Field(default=None, max_length=1024)
    type: Literal["function"] = "function"
    function: FunctionCall

    def for_template(self) -> dict[str, Any]:
        """Raises InvalidRequest."""
        return template_call(self.id, self.function.name, self.function.arguments or "", "messages")


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

    def tool(self) -> Tool:
        return Tool(self.name, self.description, self.parameters)


class ChatTool(WireModel):
    type: Literal["function"]
    function: FunctionTool


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
        schema = self.json_schema.schema_ if self.json_schema else None
        if self.type == "structural_tag":
            schema = self.model_dump(include={"type", "structures", "triggers", "format"}, exclude_none=True)
        return format_constraint(self.type, schema, "response_format")
