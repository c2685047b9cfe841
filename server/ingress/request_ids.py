"""Two ids for each request: ours, by which alone things are kept and found, and the client's, which is only repeated.

Headers that steer an engine end here: what they would say is for the key and the body to say.
"""

import re
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.ledger import Ledger

_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_CLIENT_ID = b"x-request-id"  # vLLM's server would make it the engine's own
DROPPED = frozenset({_CLIENT_ID, b"x-data-parallel-rank", b"x-priority", b"x-vllm-priority", b"x-session-id"})


class RequestIds:
    """Pure ASGI. Answers carry `X-Request-Id`, the client's own where it sent one, and `Streamgauge-Request-Id`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ledger = scope.setdefault("state", {}).get("ledger")
        client_id = client_id_of(scope)
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] not in DROPPED]
        if isinstance(ledger, Ledger):
            own_id = ledger.id
            ledger.client_request_id = client_id
        else:
            own_id = f"req-{uuid4().hex}"

        async def send_with_ids(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = client_id or own_id
                headers["Streamgauge-Request-Id"] = own_id
            await send(message)

        await self._app(scope, receive, send_with_ids)


def client_id_of(scope: Scope) -> str | None:
    """The client's id where it is one and harmless anywhere: in a header, a log line, a terminal."""
    found = [value for name, value in scope["headers"] if name == _CLIENT_ID]
    return found[0].decode() if len(found) == 1 and _ID.fullmatch(found[0]) else None
