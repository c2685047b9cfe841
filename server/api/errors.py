"""Every error as OpenAI's envelope: `{"error": {"message", "type", "param", "code"}}` with a real status."""

from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.errors import ClientGone, InternalError, InvalidRequest, MethodNotAllowed, RouteNotFound, ServeError
from server.ledger import Ledger

_log = structlog.get_logger(__name__)


def envelope(error: ServeError) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}


def install(app: FastAPI) -> None:
    """Answer each kind of failure before the first byte; after it, streams end with an event of their protocol."""
    app.add_exception_handler(ServeError, _on_serve_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_query_error)
    app.add_exception_handler(Exception, _on_bug)


async def _on_serve_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServeError)
    ledger = request.scope.get("state", {}).get("ledger")
    if isinstance(ledger, Ledger):
        ledger.error = error.code
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, ClientGone) or error.code == "server_shutting_down":
        headers["Connection"] = "close"
    return JSONResponse(envelope(error), error.status, headers)


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
    response = await _on_serve_error(request, translated)
    response.headers.update(error.headers or {})  # `Allow` of a 405
    return response


async def _on_query_error(request: Request, error: Exception) -> Response:
    """FastAPI's own: a query parameter of the wrong type or range."""
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    param = str(problem["loc"][-1])
    return await _on_serve_error(request, InvalidRequest(f"{param}: {problem['msg']}", param=param))


async def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("unhandled", path=request.scope["path"], exc_info=error)
    return await _on_serve_error(request, InternalError())
