"""Calls of a whole application in the name of whom the test says."""

import json
from collections.abc import Mapping
from typing import Any

from server.request import Caller
from tests.support.asgi import Exchange, Site, scope_of
from tests.support.site import CHAT, chat


def ask(
    site: Site,
    payload: Any = None,
    *,
    path: str = CHAT,
    caller: Caller | None = None,
    headers: Mapping[str, str] | None = None,
) -> Exchange:
    scope = scope_of("POST", path, {"content-type": "application/json", **(headers or {})})
    if caller is not None:
        scope["state"]["caller"] = caller
    return Exchange(site.app, scope, [json.dumps(chat() if payload is None else payload).encode()])
