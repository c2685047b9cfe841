"""The first look at a generation request, before its body is read: most of what overload turns away ends here."""

from collections.abc import Callable, Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from server.admission.admission import Admission
from server.errors import ServeError
from server.request import ANYBODY, Caller

Refuse = Callable[[Scope, ServeError], ASGIApp]


class Gate:
    """Pure ASGI. `paths` are those whose POST generates; `is_open` tells whether there is an engine to wait for."""

    def __init__(
        self,
        app: ASGIApp,
        admission: Admission,
        paths: Collection[str],
        refuse: Refuse,
        is_open: Callable[[], bool],
    ) -> None:
        self._app = app
        self._admission = admission
        self._paths = paths
        self._refuse = refuse
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in self._paths and self._is_open():
            try:
                self._admission.check(caller_in(scope), _body_bytes(scope))
            except ServeError as error:
                app = self._refuse(scope, error)
        await app(scope, receive, send)


def caller_in(scope: Scope) -> Caller:
    """Whose request it is; the ingress layer put it there."""
    found = scope["state"].get("caller")
    return found if isinstance(found, Caller) else ANYBODY


def _body_bytes(scope: Scope) -> int | None:
    """By Content-Length, as far as it can be trusted; None for a chunked body."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 12 else None
    return None
