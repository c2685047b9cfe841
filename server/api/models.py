"""`/v1/models`, `/tokenize` and `/detokenize`."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request

from server.api import body
from server.api.body import WireModel
from server.api.chat_messages import Message
from server.api.fields import TokenId, check_model, check_token_ids
from server.api.services import Services, services
from server.api.shaping import SHAPING_FIELDS
from server.errors import InvalidRequest

router = APIRouter()

# As OpenRouter lists them: the names of OpenAI's chat fields, and of the servers' own beyond these.
SUPPORTED = (
    "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "stop", "logprobs", "top_logprobs", "response_format", "structured_outputs",
)  # fmt: skip
NOT_SPECULATIVE = ("min_p", "logit_bias", *SHAPING_FIELDS)  # min_p and logit_bias by vLLM's own rule
WITH_TOOL_PARSER = ("tools", "tool_choice", "parallel_tool_calls")


class TokenizeRequest(WireModel):
    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1)] | None = None
    add_special_tokens: bool = True


class DetokenizeRequest(WireModel):
    model: str | None = None
    tokens: Annotated[list[TokenId], Field(fail_fast=True)]


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, Any]:
    site = services(request)
    site.check_ready()
    return {"object": "list", "data": [_card(site)]}


@router.get("/v1/models/{name:path}")
async def show_model(request: Request, name: str) -> dict[str, Any]:
    site = services(request)
    site.check_ready()
    check_model(name, site.engine.model)
    return _card(site)


@router.post("/tokenize")
async def tokenize(request: Request) -> dict[str, Any]:
    site = services(request)
    asked, size = await body.accept(request, TokenizeRequest)
    model, tokenizer = site.engine.model, site.engine.model.tokenizer
    check_model(asked.model or model.name, model)
    if (asked.prompt is None) == (asked.messages is None):
        raise InvalidRequest("Give either `prompt` or `messages`.", param="prompt")

    def work() -> list[int]:
        if asked.messages is None:
            return tokenizer.encode(asked.prompt or "", add_special_tokens=asked.add_special_tokens)
        text = tokenizer.render_chat([message.for_template() for message in asked.messages])
        return tokenizer.encode(text, add_special_tokens=False)

    tokens = await site.tokenizers.run(size, work)
    return {"tokens": tokens, "count": len(tokens), "max_model_len": model.max_model_len}


@router.post("/detokenize")
async def detokenize(request: Request) -> dict[str, Any]:
    site = services(request)
    asked, size = await body.accept(request, DetokenizeRequest)
    model = site.engine.model
    check_model(asked.model or model.name, model)
    check_token_ids(asked.tokens, model.vocab_size, "tokens")
    backend = model.tokenizer.backend
    text = await site.tokenizers.run(size, lambda: backend.decode(asked.tokens, skip_special_tokens=False))
    return {"prompt": text}


def _card(site: Services) -> dict[str, Any]:
    model = site.engine.model
    return {
        "id": model.name,
        "object": "model",
        "created": int(site.started_at),
        "owned_by": "streamgauge",
        "root": model.root,
        "parent": None,
        "max_model_len": model.max_model_len,
        "supported_parameters": _supported(site),
    }


def _supported(site: Services) -> list[str]:
    of_engine = NOT_SPECULATIVE if site.engine.model.shapes else ()
    of_parser = WITH_TOOL_PARSER if site.settings.chat.tool_parser else ()
    return [*SUPPORTED, *of_engine, *of_parser]
