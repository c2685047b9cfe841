"""Requests of Anthropic's Messages protocol, and what they are to chat templates."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from sampling.params import Structured
from server.api.body import WireModel
from server.api.content import format_constraint, text_only
from server.api.conversation import MAX_TOOLS, Conversation, Named, Tool, ToolChoice
from server.api.fields import MAX_STOPS, SamplingFields, StopString, refuse
from server.errors import InvalidRequest

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]
BlockId = Annotated[str, StringConstraints(max_length=1024)]


class TextBlock(WireModel):
    type: Literal["text"]
    text: str


class ThinkingBlock(WireModel):
    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(WireModel):
    """Nobody here can read it: it is left out."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(WireModel):
    type: Literal["tool_use"]
    id: BlockId
    name: ToolName
    input: dict[str, Any]

    def for_template(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.input}}


_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result"})
PlainBlock = Annotated[TextBlock, text_only(_BLOCKS)]
PlainContent = str | Annotated[list[PlainBlock], Field(fail_fast=True)]


class ToolResultBlock(WireModel):
    type: Literal["tool_result"]
    tool_use_id: BlockId
    content: PlainContent | None = None
    is_error: bool | None = False

    def for_template(self, names: dict[str, str]) -> dict[str, Any]:
        """Templates have no field for failure, so the text tells it."""
        text = _text(self.content or "")
        message = {"role": "tool", "tool_call_id": self.tool_use_id, "content": text}
        if self.is_error:
            message["content"] = f"Error: {text}"
        if name := names.get(self.tool_use_id):
            message["name"] = name
        return message


Block = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock
AnyBlock = Annotated[Annotated[Block, Field(discriminator="type")], text_only(_BLOCKS)]


class Message(WireModel):
    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[AnyBlock], Field(fail_fast=True)]

    @property
    def blocks(self) -> Sequence[Block]:
        if isinstance(self.content, str):
            return (TextBlock(type="text", text=self.content),)
        return self.content


class MessagesTool(WireModel):
    """A tool of the client's own; `type` names one of Anthropic's."""

    type: str | None = Field(default=None, max_length=256)
    name: ToolName
    description: str | None = Field(default=None, max_length=65_536)
    input_schema: dict[str, Any] | None = None

    def tool(self) -> Tool:
        """Raises InvalidRequest."""
        if self.type not in (None, "custom"):
            raise InvalidRequest(
                f"tools: this server has no tool of the type `{self.type[:64]}`; give a name and an input_schema.",
                param="tools",
                code="unsupported_parameter",
            )
        if self.input_schema is None:
            raise InvalidRequest(f"tools: `{self.name}` needs an input_schema.", param="tools")
        return Tool(self.name, self.description, self.input_schema)


class MessagesToolChoice(WireModel):
    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = None
    disable_parallel_tool_use: bool | None = False

    def choice(self) -> ToolChoice:
        """Raises InvalidRequest."""
        match self.type:
            case "any":
                return "required"
            case "tool":
                if self.name is None:
                    raise InvalidRequest("tool_choice: `tool` needs a name.", param="tool_choice")
                return Named(self.name)
            case "none":
                return "none"
        return "auto"


class ThinkingConfig(WireModel):
    """Budgets are not kept."""

    type: Literal["enabled", "disabled", "adaptive"]


class OutputFormat(WireModel):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")

    def constraint(self) -> Structured | None:
        """Raises InvalidRequest."""
        return format_constraint(self.type, self.schema_, "output_config")


class OutputConfig(WireModel):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class PromptFields(WireModel):
    """What the prompt is made of."""

    model: str = Field(min_length=1, max_length=1024)
    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1, max_length=10_000)
    system: PlainContent | None = None
    tools: Annotated[list[MessagesTool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: MessagesToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None

    # Not implemented: refused when set
    mcp_servers: Any = None
    container: Any = None

    def check(self) -> None:
        """Raises InvalidRequest for what is not implemented."""
        refuse({"mcp_servers": self.mcp_servers, "container": self.container})

    def conversation(self) -> Conversation:
        """Raises InvalidRequest."""
        given = self.tool_choice
        return Conversation(
            messages=self._for_template(),
            tools=[tool.tool() for tool in self.tools or ()],
            tool_choice=given.choice() if given else "auto",
            parallel_calls=given is None or not given.disable_parallel_tool_use,
            structured=self._constraint(),
            template_hints=self._hints(),
        )

    def _for_template(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if system := _text(self.system or ""):
            found.append({"role": "system", "content": system})
        names: dict[str, str] = {}  # of the tools called, by the call's id
        role = ""
        for role, turn in groupby(self.messages, key=lambda message: message.role):
            blocks = [block for message in turn for block in message.blocks]
            if role == "assistant":
                found.append(_assistant(blocks, names))
            else:
                found += _asked(role, blocks, names)
        if role == "assistant":
            raise InvalidRequest(
                "messages: the last one must be the user's; this server does not continue an answer that is begun.",
                param="messages",
            )
        return found

    def _constraint(self) -> Structured | None:
        wanted = (self.output_config.format if self.output_config else None) or self.output_format
        return wanted.constraint() if wanted else None

    def _hints(self) -> dict[str, Any]:
        """Templates call the switch one way or the other."""
        hints: dict[str, Any] = {}
        if self.thinking is not None:
            hints |= dict.fromkeys(("enable_thinking", "thinking"), self.thinking.type != "disabled")
        if self.output_config is not None:
            hints["reasoning_effort"] = self.output_config.effort
        return hints


class CountRequest(PromptFields):
    pass


class MessagesRequest(PromptFields, SamplingFields):
    max_tokens: int = Field(ge=1, lt=2**63)
    stop_sequences: Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOPS)] | None = None
    n: int | None = Field(default=1, ge=1, le=1)

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple(self.stop_sequences or ())

    def check(self) -> None:
        super().check()
        refuse({name: getattr(self, name) for name in _NO_PLACE})

    def _constraint(self) -> Structured | None:
        of_format = super()._constraint()
        if of_format is not None and self.structured_outputs is not None:
            raise InvalidRequest("Give `output_config` or `structured_outputs`.", param="structured_outputs")
        return of_format or self.constraint()


_NO_PLACE = ("stop", "prompt_logprobs", "return_token_ids")  # of other protocols; an answer has no place for them


def _text(content: str | Iterable[TextBlock]) -> str:
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def _assistant(blocks: Iterable[Block], names: dict[str, str]) -> dict[str, Any]:
    """A turn of the model's; raises InvalidRequest."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolUseBlock] = []
    for block in blocks:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ThinkingBlock():
                thoughts.append(block.thinking)
            case ToolUseBlock():
                calls.append(block)
                names[block.id] = block.name
            case ToolResultBlock():
                raise InvalidRequest("messages: a tool_result belongs in a message of the user's.", param="messages")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = [call.for_template() for call in calls]
    return message


def _asked(role: str, blocks: Sequence[Block], names: dict[str, str]) -> Iterable[dict[str, Any]]:
    """A turn of the user's: results of tools are messages of their own. Raises InvalidRequest."""
    texts: list[TextBlock] = []
    found: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case TextBlock():
                texts.append(block)
            case ToolResultBlock():
                if texts:
                    found.append({"role": role, "content": _text(texts)})
                    texts = []
                found.append(block.for_template(names))
            case _:
                raise InvalidRequest(f"messages: a {block.type} block belongs to the assistant.", param="messages")
    if texts or not found:
        found.append({"role": role, "content": _text(texts)})
    return found
