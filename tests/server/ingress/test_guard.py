"""Who may enter: every route the application has, every way to write its path, and every way not to have a key."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from prometheus_client import REGISTRY
from starlette.routing import Route

from server.api.errors import error_response
from server.config import KeySettings
from server.ingress import key_file
from server.ingress.guard import OPEN, Guard
from server.ingress.key import Scope
from server.ingress.keyring import KeyRing
from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.live import listening
from tests.support.site import CHAT, Served, serving
from tests.support.waiting import DEADLINE_S, turns

Site = Served[FakeEngine]
Secrets = dict[Scope, str]

NOT_FOR_INFERENCE = {"/metrics": Scope.METRICS, "/debug/requests": Scope.METRICS, "/openapi.json": Scope.ADMIN}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def secrets(file: Path) -> Secrets:
    """A key for each scope."""
    return {scope: key_file.add(file, scope, scopes=(scope,)) for scope in Scope}


@pytest.fixture
async def guarded(engine: FakeEngine, file: Path, secrets: Secrets) -> AsyncIterator[Site]:
    async with serving(engine, f"keys.file={file}") as served:
        yield served


async def ask(site: Site, path: str, secret: str | None = None, method: str = "GET", **changes: Any) -> Exchange:
    headers = {"Authorization": f"Bearer {secret}"} if secret is not None else {}
    return await Exchange(site.app, scope_of(method, path, headers) | changes, [b""])


async def routes(site: Site) -> list[tuple[str, str]]:
    """Methods and paths of all that the application has, and of what it has not."""
    scope = scope_of("GET", "/live")
    await Exchange(site.app, scope, [b""])
    found = [("GET", "/no-such"), ("GET", "/"), ("POST", "/invocations")]
    for route in scope["app"].routes:
        assert isinstance(route, APIRoute | Route)
        methods = {*(route.methods or ()), "HEAD", "OPTIONS", "PUT"}
        found += [(method, re.sub(r"\{.*?\}", "x", route.path)) for method in sorted(methods)]
    assert ("POST", CHAT) in found
    return found


def needed(path: str) -> Scope:
    missing = path in ("/no-such", "/", "/invocations")
    return Scope.ADMIN if missing else NOT_FOR_INFERENCE.get(path, Scope.INFER)


@pytest.mark.parametrize("secret", [None, "", "sg-wrong", "Bearer"])
async def test_without_a_key_nothing_answers_but_health(guarded: Site, secret: str | None) -> None:
    answers = {(method, path): await ask(guarded, path, secret, method) for method, path in await routes(guarded)}
    assert {path for (_, path), answer in answers.items() if answer.status != 401} == OPEN
    for (_, path), answer in answers.items():
        if path not in OPEN:
            assert answer.headers["www-authenticate"] == "Bearer"
            assert b"valid API key" in answer.body


async def test_a_key_in_another_case_is_another_key(guarded: Site, secrets: Secrets) -> None:
    for method, path in await routes(guarded):
        for secret in (secrets[Scope.ADMIN].swapcase(), secrets[Scope.ADMIN].upper()):
            assert path in OPEN or (await ask(guarded, path, secret, method)).status == 401


@pytest.mark.parametrize("scope", Scope)
async def test_a_key_opens_what_its_scope_says_and_nothing_else(guarded: Site, secrets: Secrets, scope: Scope) -> None:
    for method, path in await routes(guarded):
        if path in OPEN:
            continue
        answer = await ask(guarded, path, secrets[scope], method)
        if scope in (Scope.ADMIN, needed(path)):
            assert answer.status not in (401, 403), path
        else:
            assert answer.status == 403, path
            assert f"lacks the scope `{needed(path)}`" in answer.body.decode()


@pytest.mark.parametrize(
    "path",
    [
        "//metrics",
        "/metrics/",
        "/Metrics",
        "/metrics%2f",
        "/metrics\x00",
        "//live",
        "/live/",
        "/LIVE",
        "/live/x",
        "/live;x",
        "/live/../metrics",
        "/health/../debug/requests",
        "/v1/../metrics",
        "/v1/models/../../metrics",
        "*",
        "",
    ],
)
async def test_no_way_to_write_a_path_leads_past_the_guard(guarded: Site, secrets: Secrets, path: str) -> None:
    assert (await ask(guarded, path)).status == 401
    answer = await ask(guarded, path, secrets[Scope.INFER])
    assert answer.status in (403, 404)
    assert b"streamgauge_" not in answer.body


async def test_below_a_root_path_only_an_admin_may_do_anything(guarded: Site, secrets: Secrets) -> None:
    for root, path in (("/v1", "/v1/metrics"), ("/x", "/live"), ("/live", "/live/metrics"), ("/live", "/live")):
        assert (await ask(guarded, path, root_path=root)).status == 401
        assert (await ask(guarded, path, secrets[Scope.INFER], root_path=root)).status == 403
    assert (await ask(guarded, "/v1/metrics", secrets[Scope.ADMIN], root_path="/v1")).status == 200


@pytest.mark.parametrize("host", ["x/?", "x/#", "x/live?", "live", "127.0.0.1/health", ""])
async def test_a_host_decides_nothing(guarded: Site, host: str) -> None:
    answer = await Exchange(guarded.app, scope_of("GET", "/metrics", {"Host": host, "X-Forwarded-Host": host}), [b""])
    assert answer.status == 401


async def test_an_encoded_path_is_the_path_it_encodes(engine: FakeEngine, file: Path, secrets: Secrets) -> None:
    bearer = f"Authorization: Bearer {secrets[Scope.INFER]}\r\n"
    wanted = [
        ("/%6Detrics", "", 401),
        ("/%6Detrics", bearer, 403),
        ("/live%2F..%2Fmetrics", bearer, 403),
        ("/live?/metrics", "", 200),
        ("/%6Cive", "", 200),
        ("http://test/live", "", 200),
        ("http://test/metrics", "", 401),
    ]
    async with listening(engine, f"keys.file={file}") as live, live.client() as client:
        for target, header, status in wanted:
            client.write(f"GET {target} HTTP/1.1\r\nHost: test\r\n{header}\r\n".encode())
            assert (target, await client.head()) == (target, status)
            await client.body()


async def test_a_key_in_a_url_is_none(guarded: Site, secrets: Secrets) -> None:
    for name in ("key", "api_key", "access_token", "authorization"):
        answer = await ask(guarded, f"/v1/responses/x?stream=true&{name}={secrets[Scope.ADMIN]}")
        assert answer.status == 401


async def test_a_web_socket_is_closed_before_it_opens(guarded: Site) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    for path in (CHAT, "/live"):
        await guarded.app({**scope_of("GET", path), "type": "websocket", "subprotocols": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}] * 2


async def test_the_body_of_a_refused_request_is_not_read(file: Path, secrets: Secrets) -> None:
    async def app(*_: Any) -> None:
        raise AssertionError("let in")

    async def receive() -> Any:
        raise AssertionError("read")

    statuses: list[int] = []

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    guard = Guard(app, KeyRing(KeySettings(file=file)), error_response)
    await guard(scope_of("POST", CHAT), receive, send)
    await guard(scope_of("POST", CHAT, {"Authorization": f"Bearer {secrets[Scope.METRICS]}"}), receive, send)
    assert statuses == [401, 0, 403, 0]


async def test_refusals_are_counted_by_their_reason(guarded: Site, secrets: Secrets) -> None:
    def counts() -> list[float]:
        name = "streamgauge_auth_failures_total"
        found = [REGISTRY.get_sample_value(name, {"reason": reason}) for reason in ("missing", "unknown", "scope")]
        return [value or 0 for value in found]

    before = counts()
    for secret in (None, "", "wrong", "wrong", "wrong", secrets[Scope.INFER]):
        await ask(guarded, "/metrics", secret)
    await ask(guarded, "/live")
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [2, 3, 1]


async def test_where_all_keys_are_revoked_nobody_may_enter(engine: FakeEngine, file: Path, secrets: Secrets) -> None:
    for scope in Scope:
        key_file.revoke(file, scope)
    async with serving(engine, f"keys.file={file}") as site:
        assert (await ask(site, "/v1/models")).status == 401
        assert (await ask(site, "/live")).status == 200


async def test_where_no_key_is_configured_everybody_may(site: Site) -> None:
    for path in ("/v1/models", "/metrics", "/openapi.json"):
        assert (await ask(site, path)).status == 200
        assert (await ask(site, path, "unused")).status == 200


async def test_the_one_key_of_the_settings_opens_everything(engine: FakeEngine) -> None:
    async with serving(engine, "keys.api_key=simple") as site:
        for method, path in await routes(site):
            assert (await ask(site, path, "simple", method)).status not in (401, 403)
            assert path in OPEN or (await ask(site, path, "Simple", method)).status == 401


async def test_a_revoked_key_is_refused_while_the_server_runs(guarded: Site, file: Path, secrets: Secrets) -> None:
    assert (await ask(guarded, "/v1/models", secrets[Scope.INFER])).status == 200
    key_file.revoke(file, Scope.INFER)
    async with asyncio.timeout(DEADLINE_S):
        while (await ask(guarded, "/v1/models", secrets[Scope.INFER])).status == 200:
            await turns()
    assert (await ask(guarded, "/v1/models", secrets[Scope.INFER])).status == 401
    assert (await ask(guarded, "/v1/models", secrets[Scope.ADMIN])).status == 200
