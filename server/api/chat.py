"""`POST /v1/chat/completions`: OpenAI's chat protocol."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from server.api import body
from server.api.body import WireModel
from server.api.fields import SamplingFields, check_model, refuse, sampling_params
from server.api.generate import generate
from server.api.openai_shape import OpenAIShape
from server.api.services import ledger_of, services
from server.request import FinishReason, GenerationRequest
from server.stages import Stage
from server.streaming.sse import json_string
from server.streaming.stream import Stream

PATH = "/v1/chat/completions"

router = APIRouter()


class TextPart(WireModel):
    type: Literal["text"]
    text: str


class Message(WireModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None

    def for_template(self) -> dict[str, Any]:
        """As chat templates know it: text parts joined, OpenAI's `developer` under its older name."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())
        message: dict[str, Any] = {"role": "system" if self.role == "developer" else self.role, "content": text}
        return message | ({"name": self.name} if self.name else {})


class ChatRequest(SamplingFields):
    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1, max_length=10_000)
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**63)

    # Not implemented: refused when set
    tools: Any = None
    tool_choice: Any = None
    response_format: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    audio: Any = None
    structured_outputs: Any = None

    def refuse_unsupported(self) -> None:
        is_text = self.response_format in (None, {"type": "text"})
        refuse(
            {
                "tools": self.tools,
                "tool_choice": self.tool_choice not in (None, "none", "auto"),
                "messages.tool_calls": any(message.tool_calls for message in self.messages),
                "response_format": not is_text,
                "logprobs": self.logprobs,
                "top_logprobs": self.top_logprobs,
                "audio": self.audio,
                "structured_outputs": self.structured_outputs,
            }
        )


@router.post(PATH)
async def create_chat_completion(request: Request) -> Response:
    site, clock = services(request), ledger_of(request).clock
    raw = await body.read(request, site.settings.http.max_body_bytes)
    site.check_ready()
    model = site.engine.model
    chat = body.parse(ChatRequest, raw)
    chat.refuse_unsupported()
    check_model(chat.model, model)
    clock.lap(Stage.VALIDATE)
    messages = [message.for_template() for message in chat.messages]

    def tokenize() -> list[int]:
        return model.tokenizer.encode(model.tokenizer.render_chat(messages), add_special_tokens=False)

    prompt = await site.tokenizers.run(len(raw), tokenize)
    given = "max_tokens" if chat.max_completion_tokens is None else "max_completion_tokens"
    params = sampling_params(
        chat, model, [prompt], max_tokens=getattr(chat, given), max_tokens_name=given, prompt_name="messages"
    )
    clock.lap(Stage.TOKENIZE)
    generation = GenerationRequest(ledger_of(request).id, [prompt], params, n=chat.choices, streamed=bool(chat.stream))
    shape = ChatShape(generation.id, model.name, include_usage=chat.include_usage)
    return await generate(request, generation, shape, timings=chat.include_timings)


class ChatShape(OpenAIShape):
    """`chat.completion`, and its chunks."""

    def __init__(self, request_id: str, model: str, *, include_usage: bool) -> None:
        answer_id = f"chatcmpl-{request_id.removeprefix('req-')}"
        super().__init__(answer_id, "chat.completion.chunk", model, include_usage=include_usage, chunk_end=b"}")

    def encoder(self) -> "ChatShape":
        return self

    def delta(self, index: int, text: str, *, first: bool) -> bytes:
        start = b',"delta":{"role":"assistant","content":' if first else b',"delta":{"content":'
        return b"%b%d%b%b%b" % (self._head, index, start, json_string(text), self._tail)

    def finish(self, index: int, reason: FinishReason, *, first: bool, timings: dict[str, Any] | None) -> bytes:
        delta = {"role": "assistant", "content": ""} if first else {}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._last_chunk(choice, timings)

    def body(self, stream: Stream) -> dict[str, Any]:
        choices = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": "".join(choice.text), "refusal": None},
                "logprobs": None,
                "finish_reason": choice.finish_reason,
            }
            for choice in stream.choices
        ]
        return self._whole(stream, "chat.completion", choices)
