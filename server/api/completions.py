"""`POST /v1/completions`: OpenAI's text protocol, for prompts given as text or token ids."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from server.api import body
from server.api.fields import (
    MAX_CHOICES,
    SamplingFields,
    TokenId,
    check_model,
    check_token_ids,
    refuse,
    sampling_params,
)
from server.api.generate import generate
from server.api.openai_shape import OpenAIShape
from server.api.services import ledger_of, services
from server.engine.protocol import ModelInfo
from server.errors import InvalidRequest
from server.request import FinishReason, GenerationRequest
from server.stages import Stage
from server.streaming.sse import json_string
from server.streaming.stream import Stream

PATH = "/v1/completions"

router = APIRouter()

# Of lists as long as a body allows, the first mistake is enough: to collect a million would hold up every stream.
TokenIds = Annotated[list[TokenId], Field(fail_fast=True, min_length=1)]
Texts = Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MAX_CHOICES)]
TokenIdLists = Annotated[list[TokenIds], Field(fail_fast=True, min_length=1, max_length=MAX_CHOICES)]


class CompletionRequest(SamplingFields):
    prompt: str | Texts | TokenIds | TokenIdLists
    max_tokens: int | None = Field(default=16, ge=1, lt=2**63)  # OpenAI's default
    best_of: int | None = Field(default=None, ge=1, le=MAX_CHOICES)

    # Not implemented: refused when set
    echo: Any = None
    suffix: Any = None
    logprobs: Any = None
    structured_outputs: Any = None

    def refuse_unsupported(self) -> None:
        refuse(
            {
                "echo": self.echo,
                "suffix": self.suffix,
                "logprobs": self.logprobs,
                "structured_outputs": self.structured_outputs,
                "best_of": self.best_of is not None and self.best_of > 1,
            }
        )

    def prompts(self, model: ModelInfo) -> list[list[int]]:
        """Token ids of each prompt; raises InvalidRequest for ids the model does not have and for empty prompts."""
        given = self.prompt if isinstance(self.prompt, list) else [self.prompt]
        if isinstance(given[0], int):
            given = [given]
        prompts = [model.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt for prompt in given]
        for prompt in prompts:
            if not prompt:
                raise InvalidRequest("prompt: must not be empty.", param="prompt")
            check_token_ids(prompt, model.vocab_size, "prompt")
        return prompts


@router.post(PATH)
async def create_completion(request: Request) -> Response:
    site, clock = services(request), ledger_of(request).clock
    raw = await body.read(request, site.settings.http.max_body_bytes)
    site.check_ready()
    model = site.engine.model
    completion = body.parse(CompletionRequest, raw)
    completion.refuse_unsupported()
    check_model(completion.model, model)
    clock.lap(Stage.VALIDATE)
    prompts = await site.tokenizers.run(len(raw), lambda: completion.prompts(model))
    if len(prompts) * completion.choices > MAX_CHOICES:
        raise InvalidRequest(f"n: at most {MAX_CHOICES} choices over all prompts.", param="n")
    params = sampling_params(completion, model, prompts, max_tokens=completion.max_tokens, prompt_name="prompt")
    clock.lap(Stage.TOKENIZE)
    generation = GenerationRequest(
        ledger_of(request).id, prompts, params, n=completion.choices, streamed=bool(completion.stream)
    )
    shape = CompletionShape(generation.id, model.name, include_usage=completion.include_usage)
    return await generate(request, generation, shape, timings=completion.include_timings)


class CompletionShape(OpenAIShape):
    """`text_completion`, whole and in chunks."""

    def __init__(self, request_id: str, model: str, *, include_usage: bool) -> None:
        answer_id = f"cmpl-{request_id.removeprefix('req-')}"
        super().__init__(answer_id, "text_completion", model, include_usage=include_usage, chunk_end=b"")

    def encoder(self) -> "CompletionShape":
        return self

    def delta(self, index: int, text: str, *, first: bool) -> bytes:
        return b'%b%d,"text":%b%b' % (self._head, index, json_string(text), self._tail)

    def finish(self, index: int, reason: FinishReason, *, first: bool, timings: dict[str, Any] | None) -> bytes:
        return self._last_chunk({"index": index, "text": "", "logprobs": None, "finish_reason": reason}, timings)

    def body(self, stream: Stream) -> dict[str, Any]:
        choices = [
            {
                "index": choice.index,
                "text": "".join(choice.text),
                "logprobs": None,
                "finish_reason": choice.finish_reason,
            }
            for choice in stream.choices
        ]
        return self._whole(stream, "text_completion", choices)
