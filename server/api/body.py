"""From bytes to a checked model: bounded reading, pydantic on the bytes, errors that name the parameter."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect, Request

from server.api.services import ledger_of, services
from server.config import HttpSettings
from server.errors import BodyTooLarge, ClientGone, InvalidRequest, UnsupportedMediaType
from server.ingress.decoding import coding_of, inflate
from server.ingress.depth import deeper_than
from server.stages import Stage

Model = TypeVar("Model", bound=BaseModel)


class WireModel(BaseModel):
    """Strict types, no NaN or infinity; fields we don't know are ignored, since clients send many."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


async def accept(request: Request, kind: type[Model]) -> tuple[Model, int]:
    """What a ready server is asked, and how many bytes of JSON that took; raises ServeError."""
    site = services(request)
    raw = await read(request, site.settings.http)
    site.check_ready()
    return parse(kind, raw), len(raw)


async def read(request: Request, http: HttpSettings) -> bytes:
    """The whole body, decompressed, and not nested too deeply.

    Raises BodyTooLarge, InvalidRequest, ClientGone when it never completes, and UnsupportedMediaType: for a coding, and
    for what a page of a foreign origin could send without its browser asking us (CORS).
    """
    if "origin" in request.headers and not request.headers.get("content-type", "").startswith("application/json"):
        raise UnsupportedMediaType
    coding = coding_of(",".join(request.headers.getlist("content-encoding")) or None)
    body = await _receive(request, http.max_body_bytes)
    if coding is not None:
        body = await inflate(body, coding, max_bytes=http.max_body_bytes, max_ratio=http.max_body_ratio)
    if deeper_than(http.max_body_depth, body):
        raise InvalidRequest(f"The JSON nests deeper than {http.max_body_depth} levels.", code="json_too_deep")
    return body


async def _receive(request: Request, limit: int) -> bytes:
    ledger = ledger_of(request)
    chunks: list[bytes] = []
    size = 0
    if int(request.headers.get("content-length", 0)) > limit:
        raise BodyTooLarge
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge
            chunks.append(chunk)
    except ClientDisconnect:
        raise ClientGone from None
    connection = request.scope.get("extensions", {}).get("streamgauge")
    if connection is not None and connection.completed_ns:
        ledger.clock.advance(Stage.RECEIVE, connection.completed_ns)
    else:
        ledger.clock.lap(Stage.RECEIVE)
    return b"".join(chunks)


def parse(model: type[Model], body: bytes) -> Model:
    """Raises InvalidRequest naming the first parameter that is wrong."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _translated(error) from None


def _translated(error: ValidationError) -> InvalidRequest:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    problem = max(problems, key=lambda found: len(found["loc"]))  # of a union's members, the one that got furthest
    if problem["type"] == "json_invalid":
        return InvalidRequest("The request body is not valid JSON.", code="invalid_json")
    param = ".".join(str(part) for part in problem["loc"] if not _is_type_tag(part)) or None
    return InvalidRequest(f"{param}: {problem['msg']}" if param else problem["msg"], param=param)


def _is_type_tag(part: int | str) -> bool:
    """Pydantic puts the tried member of a union into the location: `stop.str`, `prompt.list[int].0`."""
    return isinstance(part, str) and (part in {"str", "int", "float", "bool", "TextPart"} or "[" in part or "-" in part)
