"""`POST /v1/completions`: OpenAI's text protocol, for prompts given as text or token ids."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from server.api import body
from server.api.completion_shape import CompletionShape, Echo
from server.api.fields import (
    MAX_CHOICES,
    MAX_LOGPROBS,
    SamplingFields,
    TokenId,
    check_model,
    check_token_ids,
    refuse,
    sampling_params,
)
from server.api.generate import generate
from server.api.logprobs import token_names
from server.api.openai_shape import Extras
from server.api.services import ledger_of, services
from server.api.shaping import shaping_of
from server.api.terms import terms_of
from server.engine.protocol import ModelInfo
from server.errors import InvalidRequest
from server.request import GenerationRequest, Reading
from server.stages import Stage

PATH = "/v1/completions"

router = APIRouter()

# Of lists as long as a body allows, the first mistake is enough: to collect a million would hold up every stream.
TokenIds = Annotated[list[TokenId], Field(fail_fast=True, min_length=1)]
Texts = Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MAX_CHOICES)]
TokenIdLists = Annotated[list[TokenIds], Field(fail_fast=True, min_length=1, max_length=MAX_CHOICES)]


class CompletionRequest(SamplingFields):
    prompt: str | Texts | TokenIds | TokenIdLists = Field(examples=["The capital of France is"])
    max_tokens: int | None = Field(default=16, ge=1, lt=2**63)  # OpenAI's default
    best_of: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    echo: bool | None = False
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)

    # Not implemented: refused when set
    suffix: Any = None
    response_format: Any = None
    prompt_embeds: Any = None

    def check(self) -> None:
        """Raises InvalidRequest for what is not implemented."""
        refuse(
            {
                "suffix": self.suffix,
                "best_of": self.best_of is not None and self.best_of > 1,
                "response_format": self.response_format not in (None, {"type": "text"}),
                "prompt_embeds": self.prompt_embeds,
            }
        )

    def prompts(self, model: ModelInfo) -> tuple[list[list[int]], list[Echo]]:
        """Token ids of each prompt, and what `echo` says of it.

        Raises InvalidRequest for ids the model does not have and for empty prompts.
        """
        given = self.prompt if isinstance(self.prompt, list) else [self.prompt]
        if isinstance(given[0], int):
            given = [given]
        prompts = [model.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt for prompt in given]
        for prompt in prompts:
            if not prompt:
                raise InvalidRequest("prompt: must not be empty.", param="prompt")
            check_token_ids(prompt, model.vocab_size, "prompt")
        backend = model.tokenizer.backend
        return prompts, [Echo.of(backend, *pair) for pair in zip(given, prompts, strict=True)] if self.echo else []

    @property
    def prompt_alternatives(self) -> int | None:
        """As many as the larger wish; each place shows its own number."""
        wishes = (self.logprobs if self.echo else None, self.prompt_logprobs)
        return max((wish for wish in wishes if wish is not None), default=None)


@router.post(PATH)
async def create_completion(request: Request) -> Response:
    site, ledger = services(request), ledger_of(request)
    completion, size = await body.accept(request, CompletionRequest)
    model = site.engine.model
    terms = terms_of(request)
    completion.check()
    check_model(completion.model, model)
    ledger.clock.lap(Stage.VALIDATE)
    prompts, echoes = await site.tokenizers.run(size, lambda: completion.prompts(model))
    if len(prompts) * completion.choices > MAX_CHOICES:
        raise InvalidRequest(f"n: at most {MAX_CHOICES} choices over all prompts.", param="n")
    params = sampling_params(completion, model, prompts, max_tokens=completion.max_tokens, prompt_name="prompt")
    site.admission.forecast.tokenized(size, sum(map(len, prompts)))
    shortened = terms.shortens(params)
    params = replace(
        terms.limit(params),
        logprobs=completion.logprobs,
        prompt_logprobs=completion.prompt_alternatives,
        structured=completion.constraint(),
        shaping=await shaping_of(completion, params.temperature, model, site.tokenizers),
    )
    ledger.clock.lap(Stage.TOKENIZE)
    generation = GenerationRequest(
        ledger.id,
        prompts,
        params,
        n=completion.choices,
        streamed=bool(completion.stream),
        reading=Reading(return_token_ids=bool(completion.return_token_ids), run_limit=site.settings.chat.run_limit),
        priority=terms.caller.clamp(completion.priority or 0),
        cache_salt=terms.salt(completion.salt),
        caller=terms.caller,
        timeout=terms.timeout,
        shortened=shortened,
    )
    shape = CompletionShape(
        generation,
        model.name,
        token_names(model.tokenizer.backend),
        extras=Extras(
            completion.include_usage,
            completion.continuous_usage,
            completion.logprobs,
            bool(completion.return_token_ids),
        ),
        echoes=echoes,
        prompt_logprobs=completion.prompt_logprobs,
    )
    return await generate(request, generation, shape, timings=bool(completion.include_timings))
