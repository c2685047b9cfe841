"""What the chat-like protocols (chat, responses, messages) have in common once their wire shapes are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sampling.params import Structured
from sampling.structured import StructuredError, calls_schema, schema_text
from server.errors import InvalidRequest

MAX_TOOLS = 128  # OpenAI's


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None

    @property
    def schema(self) -> Mapping[str, Any]:
        return self.parameters or {"type": "object", "properties": {}}

    def for_template(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description or "", "parameters": dict(self.schema)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Named:
    """The one tool that must be called."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | Named


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages as chat templates know them, and what the answer may be."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "auto"
    parallel_calls: bool = True
    structured: Structured | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    template_hints: Mapping[str, Any] = field(default_factory=dict)  # given where the operator lets them be; None: none

    @property
    def offered(self) -> Sequence[Tool]:
        """The tools the model is told of."""
        return () if self.tool_choice == "none" else self.tools

    @property
    def forced(self) -> bool:
        return isinstance(self.tool_choice, Named) or self.tool_choice == "required"

    def constraint(self) -> Structured | None:
        """What the output must conform to; raises InvalidRequest."""
        if not self.forced:
            return self.structured
        if self.structured is not None:
            raise InvalidRequest("A forced tool call and a response format exclude each other.", param="tool_choice")
        try:
            return Structured("json", schema_text(self._call_schema()))
        except StructuredError as error:
            raise InvalidRequest(f"tools: {error}", param="tools") from None

    def check(self) -> None:
        """Raises InvalidRequest for a choice that its tools don't allow."""
        if len(self.tools) > MAX_TOOLS:
            raise InvalidRequest(f"tools: at most {MAX_TOOLS} tools.", param="tools")
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise InvalidRequest("tools: each name may occur once.", param="tools")
        if isinstance(self.tool_choice, Named) and self.tool_choice.name not in names:
            raise InvalidRequest("tool_choice: there is no tool of that name.", param="tool_choice")
        if self.tool_choice == "required" and not names:
            raise InvalidRequest("tool_choice: `required` needs tools.", param="tool_choice")

    def _call_schema(self) -> dict[str, Any]:
        if isinstance(self.tool_choice, Named):
            return dict(next(tool for tool in self.tools if tool.name == self.tool_choice.name).schema)
        schemas = {tool.name: dict(tool.schema) for tool in self.tools}
        return calls_schema(schemas, most=None if self.parallel_calls else 1)
