"""Who may enter: deny by default, decided by the path that routes are found by, and by nothing else of the URL.

Where keys are required each request shows one, on every route that exists or doesn't, but for `OPEN`. It travels in
`Authorization: Bearer`, or in Anthropic's `x-api-key` below /v1/messages; never in a URL, where logs would keep it. An
EventSource can send neither: a page reads a stream with fetch.
"""

from collections.abc import Callable

from prometheus_client import Counter
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Request

from server.errors import InvalidKey, MissingScope, ServeError
from server.ingress.key import Key, KeyHolder, Scope
from server.ingress.keyring import KeyRing

OPEN = frozenset({"/live", "/ready", "/health"})
MESSAGES = "/v1/messages"

_INFER = frozenset({"/tokenize", "/detokenize", "/load", "/version"})
_METRICS = frozenset({"/metrics", "/debug/requests"})
_POLICY_VIOLATION = 1008  # RFC 6455 section 7.4.1

Refuse = Callable[[Request, ServeError], ASGIApp]

FAILURES = Counter("streamgauge_auth_failures", "Requests that were refused for want of a key that may.", ["reason"])
for _reason in ("missing", "unknown", "scope"):
    FAILURES.labels(_reason)


class Guard:
    """Pure ASGI. Of a request that may pass, `scope["state"]` has the `key` and the `caller`; no body is read here."""

    def __init__(self, app: ASGIApp, keys: KeyRing, refuse: Refuse) -> None:
        self._app = app
        self._keys = keys
        self._refuse = refuse

    async def __call__(self, scope: Request, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})  # there is no such route
            return
        if scope["type"] == "http" and self._keys.required and not is_open(scope):
            try:
                key = self._admit(scope)
            except ServeError as error:
                await self._refuse(scope, error)(scope, receive, send)
                return
            scope.setdefault("state", {}).update(key=key, caller=KeyHolder(key))
        await self._app(scope, receive, send)

    def _admit(self, scope: Request) -> Key:
        """Raises InvalidKey or MissingScope."""
        shown = shown_secrets(scope)
        if shown <= {b""}:
            raise _counted("missing", InvalidKey())
        key = self._keys.find(shown.pop()) if len(shown) == 1 else None
        if key is None:
            raise _counted("unknown", InvalidKey())
        needed = needed_scope(scope)
        if not key.may(needed):
            raise _counted("scope", MissingScope(needed))
        return key


def is_open(scope: Request) -> bool:
    return scope["path"] in OPEN and not scope.get("root_path")


def needed_scope(scope: Request) -> Scope:
    """By the exact path. Below a `root_path`, which we never set, a path is not its route's: only `admin` will do."""
    path: str = scope["path"]
    if scope.get("root_path"):
        return Scope.ADMIN
    if path in _METRICS:
        return Scope.METRICS
    if path in _INFER or path.startswith("/v1/"):
        return Scope.INFER
    return Scope.ADMIN


def shown_secrets(scope: Request) -> set[bytes]:
    """Every key that the request shows: more than one is none, since others on the way may have checked another."""
    path: str = scope["path"]
    by_anthropic = path == MESSAGES or path.startswith(f"{MESSAGES}/")
    shown = set()
    for name, value in scope["headers"]:
        if name == b"authorization":
            shown.add(_bearer(value))
        elif name == b"x-api-key" and by_anthropic:
            shown.add(value)
    return shown


def _bearer(value: bytes) -> bytes:
    """The token (RFC 6750 section 2.1; schemes are case-insensitive by RFC 9110 section 11.1), or empty."""
    scheme, _, token = value.partition(b" ")
    return token.strip(b" ") if scheme.lower() == b"bearer" else b""


def _counted(reason: str, error: ServeError) -> ServeError:
    FAILURES.labels(reason).inc()
    return error
