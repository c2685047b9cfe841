"""Every way a request can fail, one class per cause.

ServeError                        status  type                    code
├── InvalidRequest                400     invalid_request_error   (given)
│   ├── ContextLengthExceeded     400     invalid_request_error   context_length_exceeded
│   ├── InvalidKey                401     invalid_request_error   invalid_api_key
│   ├── MissingScope              403     invalid_request_error   missing_scope
│   ├── ModelNotFound             404     invalid_request_error   model_not_found
│   ├── RouteNotFound             404     invalid_request_error   not_found
│   ├── ResponseNotFound          404     invalid_request_error   response_not_found
│   ├── PositionEvicted           410     invalid_request_error   position_evicted
│   ├── MethodNotAllowed          405     invalid_request_error   method_not_allowed
│   ├── BodyTooLarge              413     invalid_request_error   request_too_large
│   └── UnsupportedMediaType      415     invalid_request_error   unsupported_media_type
├── RunawayOutput                 422     invalid_request_error   runaway_output
├── ClientGone                    499     cancelled               client_gone
├── ResponseCancelled             499     cancelled               response_cancelled
├── RateLimited                   429     rate_limit_error        rate_limit_exceeded
├── RequestTimeout                504     server_error            request_timeout
├── Stalled                       504     server_error            generation_stalled
├── SlowReader                    408     server_error            slow_reader
├── Overloaded                    503     overloaded_error        server_overloaded
├── LimitsUnavailable             503     server_error            limits_unavailable
├── NotReady                      503     overloaded_error        model_not_ready
├── EngineStalled                 503     overloaded_error        engine_stalled
├── ShuttingDown                  503     overloaded_error        server_shutting_down
├── EngineFailed                  500     server_error            engine_error
│   └── EngineDied                503     server_error            engine_dead
└── InternalError                 500     server_error            internal_error

Messages are written for clients: no text of an inner exception, no path, no address ever goes into one.
"""

from collections.abc import Mapping
from math import ceil
from typing import ClassVar

MAX_RETRY_AFTER_S = 120  # openai-python does not retry at all when it is told to wait longer


class ServeError(Exception):
    """Base of all errors a client may see. `retry_after` is in seconds.

    `figures` go into the body beside the message, for programs: why, and by which numbers.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: str | None = None
    retry_after: int | None = None
    default_message: ClassVar[str] = "The server failed to process the request."

    def __init__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        figures: Mapping[str, str | int | float] | None = None,
    ) -> None:
        self.message = message or self.default_message
        self.param = param
        self.figures = figures or {}
        if code is not None:
            self.code = code
        if retry_after is not None:
            self.retry_after = min(max(ceil(retry_after), 1), MAX_RETRY_AFTER_S)
        super().__init__(self.message)


class InvalidRequest(ServeError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_value"
    default_message = "The request is invalid."


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"

    def __init__(self, limit: int, prompt_tokens: int, max_tokens: int, param: str) -> None:
        super().__init__(
            f"This model's maximum context length is {limit} tokens, but {prompt_tokens} prompt and {max_tokens} "
            f"output tokens were requested, {prompt_tokens + max_tokens} in all.",
            param=param,
        )


class InvalidKey(InvalidRequest):
    """No key where one is needed, or one that there is none of: not told apart."""

    status = 401
    code = "invalid_api_key"
    default_message = "A valid API key is needed: send it as `Authorization: Bearer …`."


class MissingScope(InvalidRequest):
    status = 403
    code = "missing_scope"

    def __init__(self, scope: str) -> None:
        super().__init__(f"This API key lacks the scope `{scope}`.")


class ModelNotFound(InvalidRequest):
    status = 404
    code = "model_not_found"
    default_message = "The model does not exist."


class RouteNotFound(InvalidRequest):
    status = 404
    code = "not_found"
    default_message = "There is nothing at this path."


class ResponseNotFound(InvalidRequest):
    status = 404
    code = "response_not_found"
    default_message = "There is no such response; it may have expired, or was never stored."


class PositionEvicted(InvalidRequest):
    """A reader asks for events that are no longer kept."""

    status = 410
    code = "position_evicted"

    def __init__(self, position: int, first: int) -> None:
        super().__init__(f"Event {position} is no longer kept; the first that is has number {first}.")
        self.position = position


class MethodNotAllowed(InvalidRequest):
    status = 405
    code = "method_not_allowed"
    default_message = "This path does not answer that method."


class BodyTooLarge(InvalidRequest):
    status = 413
    code = "request_too_large"
    default_message = "The request body is too large."


class UnsupportedMediaType(InvalidRequest):
    """A web page may send anything but JSON to any server without asking first; JSON its browser asks about."""

    status = 415
    code = "unsupported_media_type"
    default_message = "A web page must send its request as application/json."


class RunawayOutput(ServeError):
    """Under a grammar a model may write blanks or digits for ever; trying again would end the same."""

    status = 422
    type = "invalid_request_error"
    code = "runaway_output"
    default_message = "The model wrote blanks or digits without end under this schema or grammar; the answer was cut."


class ClientGone(ServeError):
    """The client closed its connection; nobody reads this."""

    status = 499
    type = "cancelled"
    code = "client_gone"
    default_message = "The client closed the connection."


class ResponseCancelled(ServeError):
    """Somebody asked for the end of a response that runs in the background."""

    status = 499
    type = "cancelled"
    code = "response_cancelled"
    default_message = "The response was cancelled."


class RateLimited(ServeError):
    """A key has used what it may; `figures` say of what, how much, and when there is some again."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    retry_after = 1
    default_message = "This API key has reached its limit."


class RequestTimeout(ServeError):
    status = 504
    code = "request_timeout"
    default_message = "The request took longer than the server allows."


class Stalled(ServeError):
    status = 504
    code = "generation_stalled"
    default_message = "The engine has brought no token for too long; the request was given up."


class SlowReader(ServeError):
    status = 408
    code = "slow_reader"
    default_message = "The client read its stream too slowly."


class Overloaded(ServeError):
    """Turned away before any work was done; `figures` name the `reason` and the numbers behind it."""

    status = 503
    type = "overloaded_error"
    code = "server_overloaded"
    retry_after = 1
    default_message = "The server has as much work as it can do in time."


class LimitsUnavailable(ServeError):
    """The shared store of rate limits does not answer, and the operator wants no request let through uncounted."""

    status = 503
    code = "limits_unavailable"
    retry_after = 2
    default_message = "Rate limits cannot be checked at the moment."


class NotReady(ServeError):
    status = 503
    type = "overloaded_error"
    code = "model_not_ready"
    retry_after = 5
    default_message = "The model is still loading."


class EngineStalled(ServeError):
    """Requests run, and the engine makes no progress."""

    status = 503
    type = "overloaded_error"
    code = "engine_stalled"
    retry_after = 10
    default_message = "The engine makes no progress at the moment."


class ShuttingDown(ServeError):
    status = 503
    type = "overloaded_error"
    code = "server_shutting_down"
    retry_after = 5
    default_message = "The server is shutting down."


class EngineFailed(ServeError):
    """The engine ended this one request with an error; the others go on."""

    code = "engine_error"
    default_message = "The engine failed to process the request."


class EngineDied(EngineFailed):
    status = 503
    code = "engine_dead"
    default_message = "The engine has stopped; the request cannot be completed."


class InternalError(ServeError):
    code = "internal_error"
