"""What a connection is told when its bytes make no request that the application could answer."""

import json
from dataclasses import dataclass
from http import HTTPStatus


@dataclass(frozen=True)
class Refusal:
    """An answer of the protocol's own, in OpenAI's envelope; the connection closes after it."""

    status: HTTPStatus
    code: str
    message: str

    def __bytes__(self) -> bytes:
        """The whole HTTP/1.1 response."""
        told = {"message": self.message, "type": "invalid_request_error", "param": None, "code": self.code}
        body = json.dumps({"error": told}).encode()
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + body


class Refused(Exception):
    """Raised in the parser's callbacks, which end the parsing by it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


MALFORMED = Refusal(HTTPStatus.BAD_REQUEST, "invalid_http", "This is no valid HTTP/1.1 request.")
BAD_HOST = Refusal(HTTPStatus.BAD_REQUEST, "invalid_host", "A request needs one valid Host header.")
UPGRADE = Refusal(HTTPStatus.BAD_REQUEST, "upgrade_unsupported", "This server upgrades to no other protocol.")
TOO_MANY = Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too_many_pipelined", "Too many requests wait on this connection.")
HEAD_TOO_LARGE = Refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", "The request's headers are too large or too many."
)
HEAD_TOO_SLOW = Refusal(HTTPStatus.REQUEST_TIMEOUT, "header_timeout", "The request's headers took too long to arrive.")
BODY_TOO_SLOW = Refusal(HTTPStatus.REQUEST_TIMEOUT, "body_timeout", "The request's body took too long to arrive.")
