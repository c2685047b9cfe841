"""`POST /v1/chat/completions`: OpenAI's chat protocol."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from server.api import body
from server.api.chat_messages import ChatTool, Message, NamedToolChoice, ResponseFormat, tool_choice
from server.api.chat_shape import ChatShape
from server.api.conversation import MAX_TOOLS, Conversation
from server.api.fields import MAX_LOGPROBS, SamplingFields, check_model, refuse
from server.api.generate import generate
from server.api.logprobs import token_names
from server.api.openai_shape import Extras
from server.api.prepare import prepare
from server.api.services import services
from server.errors import InvalidRequest

PATH = "/v1/chat/completions"

router = APIRouter()


class ChatRequest(SamplingFields):
    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1, max_length=10_000)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**63)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    response_format: ResponseFormat | None = None
    tools: Annotated[list[ChatTool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = True
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None

    # Not implemented: refused when set
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    chat_template: Any = None
    documents: Any = None

    def check(self) -> None:
        """Raises InvalidRequest for what is not implemented or does not go together."""
        refuse({name: getattr(self, name) for name in _REFUSED})
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequest("top_logprobs needs `logprobs`.", param="top_logprobs")
        if self.structured_outputs is not None and self.response_format not in (None, ResponseFormat(type="text")):
            raise InvalidRequest("Give `response_format` or `structured_outputs`.", param="structured_outputs")

    def conversation(self) -> Conversation:
        """Raises InvalidRequest."""
        of_format = self.response_format.constraint() if self.response_format else None
        return Conversation(
            messages=[message.for_template() for message in self.messages],
            tools=[tool.function.tool() for tool in self.tools or ()],
            tool_choice=tool_choice(self.tool_choice),
            parallel_calls=self.parallel_tool_calls is not False,
            structured=of_format or self.constraint(),
            template_kwargs=self.chat_template_kwargs or {},
            template_hints={"reasoning_effort": self.reasoning_effort},
        )

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


_REFUSED = ("audio", "functions", "function_call", "chat_template", "documents")


@router.post(PATH)
async def create_chat_completion(request: Request) -> Response:
    site = services(request)
    chat, size = await body.accept(request, ChatRequest)
    model = site.engine.model
    chat.check()
    check_model(chat.model, model)
    given = "max_tokens" if chat.max_completion_tokens is None else "max_completion_tokens"
    generation = await prepare(
        request,
        chat.conversation(),
        chat,
        size,
        max_tokens=getattr(chat, given),
        max_tokens_name=given,
        prompt_name="messages",
        top_logprobs=chat.alternatives,
    )
    shape = ChatShape(
        generation,
        model.name,
        token_names(model.tokenizer.backend),
        extras=Extras(chat.include_usage, chat.continuous_usage, chat.alternatives, bool(chat.return_token_ids)),
        reasoning_field=site.settings.chat.reasoning_field,
    )
    return await generate(request, generation, shape, timings=bool(chat.include_timings))
