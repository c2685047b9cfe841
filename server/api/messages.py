"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's protocol."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from server.api import body
from server.api.errors import MESSAGES
from server.api.fields import check_model
from server.api.generate import generate
from server.api.messages_shape import MessagesShape
from server.api.messages_wire import CountRequest, MessagesRequest
from server.api.prepare import prepare, tokenized
from server.api.services import services

PATH = MESSAGES

router = APIRouter()


@router.post(PATH)
async def create_message(request: Request) -> Response:
    site = services(request)
    asked, size = await body.accept(request, MessagesRequest)
    model = site.engine.model
    asked.check()
    check_model(asked.model, model)
    generation = await prepare(
        request,
        asked.conversation(),
        asked,
        size,
        max_tokens=asked.max_tokens,
        max_tokens_name="max_tokens",
        prompt_name="messages",
    )
    response = await generate(
        request, generation, MessagesShape(generation, model.name), timings=bool(asked.include_timings)
    )
    response.headers["Request-Id"] = generation.id  # where Anthropic's clients look for it
    return response


@router.post(f"{PATH}/count_tokens")
async def count_tokens(request: Request) -> dict[str, int]:
    """As many as the same request would have as its prompt."""
    site = services(request)
    asked, size = await body.accept(request, CountRequest)
    asked.check()
    check_model(asked.model, site.engine.model)
    conversation = asked.conversation()
    conversation.check()
    _, prompt = await tokenized(site, conversation, size)
    return {"input_tokens": len(prompt)}
