"""What `POST /v1/responses` takes."""

from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sampling.params import Structured
from server.api.body import WireModel
from server.api.chat_messages import FunctionTool, ToolName
from server.api.content import format_constraint
from server.api.conversation import MAX_TOOLS, Conversation, Named, Tool, ToolChoice
from server.api.fields import MAX_LOGPROBS, SamplingFields, refuse
from server.api.responses_input import Input, Item, messages_of
from server.errors import InvalidRequest

Label = Annotated[str, Field(max_length=1024)]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]


def _functions_only(tool: Any) -> Any:
    if isinstance(tool, dict) and isinstance(kind := tool.get("type"), str) and kind != "function":
        raise PydanticCustomError("hosted_tool", "this server has function tools only, no {kind}", {"kind": kind[:40]})
    return tool


class FlatTool(FunctionTool):
    type: Literal["function"]


ResponseTool = Annotated[FlatTool, BeforeValidator(_functions_only)]


class NamedFunction(WireModel):
    type: Literal["function"]
    name: ToolName


class AllowedTools(WireModel):
    """Of the tools the model is told of only these, by name."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedFunction], Field(fail_fast=True, min_length=1, max_length=MAX_TOOLS)]


class TextFormat(WireModel):
    """`strict` or not, an answer conforms to its schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: str = Field(default="", max_length=64)
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None

    def constraint(self) -> Structured | None:
        """Raises InvalidRequest."""
        return format_constraint(self.type, self.schema_, "text.format")

    def echo(self) -> dict[str, Any]:
        if self.type != "json_schema":
            return {"type": self.type}
        told = {"name": self.name, "description": self.description, "schema": self.schema_}
        return {"type": self.type, **told, "strict": bool(self.strict)}


class TextOptions(WireModel):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(WireModel):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesRequest(SamplingFields):
    input: Input
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, lt=2**63)
    max_tool_calls: int | None = Field(default=None, ge=1, lt=2**63)
    tools: Annotated[list[ResponseTool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | AllowedTools | None = None
    parallel_tool_calls: bool | None = True
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    include: Annotated[list[Label], Field(max_length=64)] | None = None
    store: bool | None = True
    background: bool | None = False
    previous_response_id: Label | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: Metadata | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    # Not implemented: refused when set
    conversation: Any = None
    prompt: Any = None

    def check(self) -> None:
        """Raises InvalidRequest for what is not implemented or does not go together."""
        refuse({name: getattr(self, name) for name in _REFUSED})
        if self.choices > 1:
            raise InvalidRequest("n: a response has one answer.", param="n", code="unsupported_parameter")
        if self.max_tokens is not None:
            raise InvalidRequest("max_tokens: this protocol has `max_output_tokens`.", param="max_tokens")
        if self.background and not self.stored:
            raise InvalidRequest("background needs `store`.", param="background")
        if self.structured_outputs is not None and self._format_constraint() is not None:
            raise InvalidRequest("Give `text.format` or `structured_outputs`.", param="structured_outputs")
        self._check_echo()

    def conversation_of(self, items: list[Item]) -> Conversation:
        """Raises InvalidRequest."""
        constraint = self.constraint() or self._format_constraint()
        return Conversation(
            messages=messages_of(self.instructions, items),
            tools=self._offered(),
            tool_choice=self._tool_choice(),
            parallel_calls=self.parallel_tool_calls is not False,
            structured=constraint,
            template_kwargs=self.chat_template_kwargs or {},
            template_hints={"reasoning_effort": self.reasoning.effort if self.reasoning else None},
        )

    @property
    def stored(self) -> bool:
        return self.store is not False

    @property
    def alternatives(self) -> int | None:
        """Per token; None: no log probabilities were asked for."""
        asked = self.top_logprobs or "message.output_text.logprobs" in (self.include or ())
        return (self.top_logprobs or 0) if asked else None

    def _check_echo(self) -> None:
        """Schemas are told again in every answer, as JSON that any client can read."""
        try:
            orjson.dumps([tool.parameters for tool in self.tools or ()])
        except TypeError:
            raise InvalidRequest("tools: a schema has a number of more than 64 bits.", param="tools") from None
        try:
            orjson.dumps(self.text.format.schema_ if self.text and self.text.format else None)
        except TypeError:
            raise InvalidRequest("text.format: a number has more than 64 bits.", param="text.format") from None

    def _format_constraint(self) -> Structured | None:
        return self.text.format.constraint() if self.text and self.text.format else None

    def _offered(self) -> list[Tool]:
        tools = [tool.tool() for tool in self.tools or ()]
        if not isinstance(self.tool_choice, AllowedTools):
            return tools
        allowed = {tool.name for tool in self.tool_choice.tools}
        if not allowed <= {tool.name for tool in tools}:
            raise InvalidRequest("tool_choice: there is no tool of that name.", param="tool_choice")
        return [tool for tool in tools if tool.name in allowed]

    def _tool_choice(self) -> ToolChoice:
        match self.tool_choice:
            case NamedFunction(name=name):
                return Named(name)
            case AllowedTools(mode=mode):
                return mode
            case "none" | "required" as choice:
                return choice
        return "auto"

    def echo(self) -> dict[str, Any]:
        """The part of a response object that repeats what was asked."""
        choice, text = self.tool_choice, self.text
        return {
            "instructions": self.instructions,
            "previous_response_id": self.previous_response_id,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "tools": [{"type": tool.type, **tool.model_dump()} for tool in self.tools or ()],
            "tool_choice": choice.model_dump() if isinstance(choice, WireModel) else choice or "auto",
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "text": {"format": text.format.echo() if text and text.format else {"type": "text"}}
            | ({"verbosity": text.verbosity} if text and text.verbosity else {}),
            "reasoning": {
                "effort": self.reasoning.effort if self.reasoning else None,
                "summary": self.reasoning.summary if self.reasoning else None,
            },
            "top_logprobs": self.top_logprobs or 0,
            "truncation": "disabled",
            "store": self.stored,
            "background": bool(self.background),
            "service_tier": "default",
            "metadata": self.metadata or {},
            "user": self.user,
            "safety_identifier": self.safety_identifier,
            "prompt_cache_key": self.prompt_cache_key,
        }


_REFUSED = ("conversation", "prompt", "prompt_logprobs", "return_token_ids")
