"""Every way a request can fail, one class per cause.

ServeError                        status  type                    code
├── InvalidRequest                400     invalid_request_error   (given)
│   ├── ContextLengthExceeded     400     invalid_request_error   context_length_exceeded
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
├── RequestTimeout                504     server_error            request_timeout
├── SlowReader                    408     server_error            slow_reader
├── Overloaded                    503     overloaded_error        server_overloaded
├── NotReady                      503     overloaded_error        model_not_ready
├── ShuttingDown                  503     overloaded_error        server_shutting_down
├── EngineFailed                  500     server_error            engine_error
│   └── EngineDied                503     server_error            engine_dead
└── InternalError                 500     server_error            internal_error

Messages are written for clients: no text of an inner exception, no path, no address ever goes into one.
"""

from typing import ClassVar


class ServeError(Exception):
    """Base of all errors a client may see. `retry_after` is in seconds."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: str | None = None
    retry_after: ClassVar[int | None] = None
    default_message: ClassVar[str] = "The server failed to process the request."

    def __init__(self, message: str | None = None, *, param: str | None = None, code: str | None = None) -> None:
        self.message = message or self.default_message
        self.param = param
        if code is not None:
            self.code = code
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


class RequestTimeout(ServeError):
    status = 504
    code = "request_timeout"
    default_message = "The request took longer than the server allows."


class SlowReader(ServeError):
    status = 408
    code = "slow_reader"
    default_message = "The client read its stream too slowly."


class Overloaded(ServeError):
    status = 503
    type = "overloaded_error"
    code = "server_overloaded"
    retry_after = 1
    default_message = "The server is at its limit of concurrent requests."


class NotReady(ServeError):
    status = 503
    type = "overloaded_error"
    code = "model_not_ready"
    retry_after = 5
    default_message = "The model is still loading."


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
