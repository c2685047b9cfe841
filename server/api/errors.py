"""Every error with a real status, in the envelope of the protocol whose path it is.

OpenAI's `{"error": {"message", "type", "param", "code"}}`, except that /v1/messages and all below it have Anthropic's
`{"type": "error", "error": {"type", "message"}, "request_id"}`.
"""

from typing import Any

import orjson
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from server.errors import (
    ClientGone,
    InternalError,
    InvalidKey,
    InvalidRequest,
    MethodNotAllowed,
    RouteNotFound,
    ServeError,
)
from server.ledger import Ledger

MESSAGES = "/v1/messages"

_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_log = structlog.get_logger(__name__)


def envelope(error: ServeError) -> dict[str, Any]:
    """OpenAI's."""
    told = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": {**told, **error.figures}}


def messages_envelope(error: ServeError, request_id: str | None) -> dict[str, Any]:
    """Anthropic's; its types go by the status."""
    kind = _ANTHROPIC_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    told = {"type": kind, "message": error.message, **error.figures}
    return {"type": "error", "error": told, "request_id": request_id}


def error_response(scope: Scope, error: ServeError) -> Response:
    """The whole answer to a request that failed before its first byte; the one place that chooses an envelope."""
    ledger = scope.get("state", {}).get("ledger")
    request_id: str | None = None
    if isinstance(ledger, Ledger):
        ledger.error = error.code
        request_id = ledger.id
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, InvalidKey):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, ClientGone) or error.code == "server_shutting_down":
        headers["Connection"] = "close"
    path: str = scope["path"]
    if path != MESSAGES and not path.startswith(f"{MESSAGES}/"):
        return _json(envelope(error), error.status, headers)
    if request_id is not None:
        headers["Request-Id"] = request_id
    return _json(messages_envelope(error, request_id), error.status, headers)


def _json(content: dict[str, Any], status: int, headers: dict[str, str]) -> Response:
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Answer each kind of failure before the first byte; after it, streams end with an event of their protocol."""
    app.add_exception_handler(ServeError, _on_serve_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_query_error)
    app.add_exception_handler(Exception, _on_bug)


async def _on_serve_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServeError)
    return error_response(request.scope, error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own: an unknown path or method."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            translated: ServeError = RouteNotFound()
        case 405:
            translated = MethodNotAllowed()
        case _:
            translated = InvalidRequest()
    response = error_response(request.scope, translated)
    response.headers.update(error.headers or {})  # `Allow` of a 405
    return response


async def _on_query_error(request: Request, error: Exception) -> Response:
    """FastAPI's own: a query parameter of the wrong type or range."""
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    param = str(problem["loc"][-1])
    return error_response(request.scope, InvalidRequest(f"{param}: {problem['msg']}", param=param))


async def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("unhandled", path=request.scope["path"], exc_info=error)
    return error_response(request.scope, InternalError())
