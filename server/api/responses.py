"""`/v1/responses`: OpenAI's Responses protocol, with responses that are stored, continued and run in the background."""

from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from server.api import body
from server.api.fields import check_model
from server.api.generate import collected, start, streamed
from server.api.logprobs import TokenNames, token_names
from server.api.prepare import prepare
from server.api.responses_background import BackgroundRun, read_log
from server.api.responses_input import Item, items_of, remembered
from server.api.responses_shape import Collector, Keep, Writer
from server.api.responses_store import StoredResponse
from server.api.responses_wire import ResponsesRequest
from server.api.services import Services, caller_of, ledger_of, services
from server.errors import InvalidRequest, RouteNotFound, ServeError
from server.request import GenerationRequest
from server.telemetry.middleware import close_ledger

PATH = "/v1/responses"

router = APIRouter()


@router.post(PATH)
async def create_response(request: Request) -> Response:
    site = services(request)
    asked, size = await body.accept(request, ResponsesRequest)
    asked.check()
    check_model(asked.model, site.engine.model)
    items = _items(request, asked)
    generation = await prepare(
        request,
        asked.conversation_of(items),
        asked,
        size,
        max_tokens=asked.max_output_tokens,
        max_tokens_name="max_output_tokens",
        prompt_name="input",
        top_logprobs=asked.alternatives,
    )
    if asked.background:
        return await _in_background(request, asked, generation, items)
    kind = Writer if asked.stream else Collector
    keep = _keeper(request, items) if asked.stored else None
    collector = kind(generation, site.engine.model.name, _names(site), asked.echo(), keep)
    stream = start(request, generation, collector, timings=bool(asked.include_timings))
    if asked.stream:
        return await streamed(request, stream)
    return await collected(request, stream, lambda: dict(collector.final or {}), timings=bool(asked.include_timings))


@router.post(PATH + "/compact")
async def compact_conversation() -> Response:
    """OpenAI has such a path; told apart from a response's id, it isn't there."""
    raise RouteNotFound


@router.get(PATH + "/{response_id}")
async def retrieve_response(
    request: Request,
    response_id: str,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> Response:
    response = _stored(request, response_id)
    if not stream:
        return _json(response.body)
    if response.run is None:
        raise InvalidRequest("Only a response that was made with `background` can be streamed again.", param="stream")
    return read_log(request, services(request), response.run.log, starting_after)


@router.delete(PATH + "/{response_id}")
async def delete_response(request: Request, response_id: str) -> dict[str, Any]:
    response = _stored(request, response_id)
    services(request).responses.remove(response)
    if response.run is not None:
        response.run.cancel()
    return {"id": response.id, "object": "response", "deleted": True}


@router.post(PATH + "/{response_id}/cancel")
async def cancel_response(request: Request, response_id: str) -> Response:
    """Of a response that has ended already the end stands."""
    response = _stored(request, response_id)
    if response.run is None:
        raise InvalidRequest("Only a response that was made with `background` can be cancelled.")
    response.run.cancel()
    return _json(response.body)


@router.get(PATH + "/{response_id}/input_items")
async def list_input_items(
    request: Request,
    response_id: str,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: str | None = None,
) -> dict[str, Any]:
    items = _stored(request, response_id).input_items()
    if order == "desc":
        items.reverse()
    if after is not None:
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise InvalidRequest("after: there is no such item.", param="after")
        items = items[places[0] + 1 :]
    page = items[:limit]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return {"object": "list", "data": page, **ends, "has_more": len(items) > limit}


async def _in_background(
    request: Request, asked: ResponsesRequest, generation: GenerationRequest, items: list[Item]
) -> Response:
    """Answer at once; the stream goes on, whoever reads it. Its ledger is closed at its end, not at this call's."""
    site, ledger = services(request), ledger_of(request)
    store = site.responses

    def on_end(final: dict[str, Any]) -> None:
        store.end(response, final)
        if request.scope["state"].get("ledger") is not ledger:
            close_ledger(ledger, site.metrics, site.records)

    writer = Writer(generation, site.engine.model.name, _names(site), asked.echo())
    run = BackgroundRun(writer, site.settings.responses.event_log_bytes, on_end)
    response = StoredResponse(writer.id, caller_of(request).owner, orjson.dumps(items), run)
    store.start(response)
    run.attach(start(request, generation, writer, timings=bool(asked.include_timings), sink=run.log))
    try:
        await run.admitted()
    except ServeError:
        store.remove(response)
        raise
    if not response.ended:
        request.scope["state"].pop("ledger", None)
        ledger.status = 200
    return read_log(request, site, run.log) if asked.stream else _json(response.body)


def _keeper(request: Request, items: list[Item]) -> Keep:
    store, owner = services(request).responses, caller_of(request).owner
    return lambda final: store.end(StoredResponse(final["id"], owner, orjson.dumps(items)), final)


def _names(site: Services) -> TokenNames:
    return token_names(site.engine.model.tokenizer.backend)


def _items(request: Request, asked: ResponsesRequest) -> list[Item]:
    """The whole conversation up to the answer; raises InvalidRequest or ResponseNotFound."""
    store, owner = services(request).responses, caller_of(request).owner
    earlier = store.conversation(asked.previous_response_id, owner) if asked.previous_response_id else []
    return remembered(earlier) + items_of(asked.input, lambda item_id: store.item(item_id, owner))


def _stored(request: Request, response_id: str) -> StoredResponse:
    return services(request).responses.get(response_id, caller_of(request).owner, param="response_id")


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")
