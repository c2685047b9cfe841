"""Rate limits at the door: a request is counted before its body is read, and holds a slot until its answer has left."""

from collections.abc import Container

from prometheus_client import CollectorRegistry
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.config import LimitSettings
from server.errors import ServeError
from server.ingress.account import Account, Usage
from server.ingress.guard import Refuse
from server.ingress.key import Key, Limits
from server.ingress.limit_store import store_of
from server.request import ANYBODY, Caller

NONE = Limits()


class Quotas:
    """What every key has used. Raises ConfigError for a storage of an unknown kind."""

    def __init__(self, settings: LimitSettings, registry: CollectorRegistry) -> None:
        self._defaults = Limits(settings.requests_per_minute, settings.tokens_per_minute, settings.concurrent_requests)
        self._store = store_of(settings, registry)
        self._usage: dict[str, Usage] = {}  # as many as there are keys

    def account(self, caller: Caller, key: Key | None) -> Account | None:
        """For one request; None where nothing is limited."""
        limits = self._limits_of(key)
        if limits == NONE:
            return None
        return Account(caller, limits, self._store, self._usage.setdefault(caller.name, Usage()))

    async def close(self) -> None:
        await self._store.close()

    def _limits_of(self, key: Key | None) -> Limits:
        if key is None or key.limits == NONE:
            return self._defaults
        own, general = key.limits, self._defaults
        return Limits(
            own.requests_per_minute or general.requests_per_minute,
            own.tokens_per_minute or general.tokens_per_minute,
            own.concurrent_requests or general.concurrent_requests,
        )


class QuotaGate:
    """Pure ASGI. Limits POST on the `generating` paths, and puts the request's Account where its caller was.

    A slot ends with the call, and so with the client's connection. A background response outlives the call that began
    it and holds no slot from then on: what bounds those is admission, and the key's tokens.
    """

    def __init__(self, app: ASGIApp, generating: Container[str], quotas: Quotas, refuse: Refuse) -> None:
        self._app = app
        self._generating = generating
        self._quotas = quotas
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        account = self._account(scope)
        if account is None:
            await self._app(scope, receive, send)
            return

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(await account.headers())
            await send(message)

        try:
            await account.enter()
        except ServeError as error:
            await self._refuse(scope, error)(scope, receive, send_with_limits)
            return
        try:
            await self._app(scope, receive, send_with_limits)
        finally:
            account.leave()

    def _account(self, scope: Scope) -> Account | None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._generating:
            return None
        state = scope.setdefault("state", {})
        account = self._quotas.account(state.get("caller", ANYBODY), state.get("key"))
        if account is not None:
            state["caller"] = account
        return account
