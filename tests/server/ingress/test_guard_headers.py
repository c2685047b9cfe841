"""How a key is shown: which headers carry one, and what is none."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, Served, chat, serving

KEY = b"sg-Q2hhbmdlIG1lIQ"
MESSAGES = "/v1/messages"
PAGE = "https://app.example"

Site = Served[FakeEngine]
Pairs = Sequence[tuple[bytes, bytes]]


@pytest.fixture
async def guarded(engine: FakeEngine) -> AsyncIterator[Site]:
    async with serving(engine, f"keys.api_key={KEY.decode()}", f"http.cors_origins=[{PAGE}]") as served:
        yield served


async def ask(site: Site, path: str, headers: Pairs, method: str = "GET", body: bytes = b"") -> Exchange:
    scope = scope_of(method, path)
    scope["headers"] = [*headers]
    return await Exchange(site.app, scope, [body])


def authorization(*values: bytes) -> Pairs:
    return [(b"authorization", value) for value in values]


@pytest.mark.parametrize("value", [b"Bearer " + KEY, b"bearer " + KEY, b"BEARER   " + KEY + b" "])
async def test_a_bearer_is_one_however_its_scheme_is_written(guarded: Site, value: bytes) -> None:
    assert (await ask(guarded, "/v1/models", authorization(value))).status == 200


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        KEY,
        b"Bearer" + KEY,
        b"Bearer\t" + KEY,
        b"Basic " + KEY,
        b"Token " + KEY,
        b"Bearer " + KEY[:-1],
        b"Bearer " + KEY + b"x",
        b"Bearer " + KEY.swapcase(),
        b"Bearer " + KEY + b"\x00",
        b'Bearer "' + KEY + b'"',
        b"Bearer " + KEY + b" " + KEY,
        b"Bearer " + KEY + b", Bearer " + KEY,
        b"Bearer Bearer " + KEY,
        b"Bearer \xff\xfe\xe9",
        "Bearer ключ".encode(),
        b"Bearer x' OR (SELECT pg_sleep(8))--",
        b"Bearer {{7*7}}",
        b"Bearer \x1b[31m",
        b"Bearer " + b"x" * 2**20,
        b"Bearer " + KEY * 60_000,
        b"Bearer" + b" " * 2**20,
    ],
    ids=range(24),
)
async def test_whatever_else_stands_there_is_no_key(guarded: Site, value: bytes) -> None:
    answer = await ask(guarded, "/v1/models", authorization(value))
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert (await ask(guarded, "/v1/models", authorization(b"Bearer " + KEY))).status == 200


@pytest.mark.parametrize("other", [b"Bearer wrong", b"Basic dXNlcjpwYXNz", b"", b"Bearer"])
async def test_two_headers_that_differ_show_no_key(guarded: Site, other: bytes) -> None:
    for pair in ((b"Bearer " + KEY, other), (other, b"Bearer " + KEY)):
        assert (await ask(guarded, "/v1/models", authorization(*pair))).status == 401


async def test_anthropics_header_is_a_key_on_anthropics_paths_alone(guarded: Site) -> None:
    shown = [(b"x-api-key", KEY), (b"content-type", b"application/json")]
    for path in (MESSAGES, f"{MESSAGES}/count_tokens"):
        answer = await ask(guarded, path, shown, "POST", b"{}")
        assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
    for path in (CHAT, "/v1/messagesx", "/v1/models", "/metrics"):
        assert (await ask(guarded, path, shown, "POST", b"{}")).status == 401


@pytest.mark.parametrize(
    ("bearer", "api_key", "status"),
    [(KEY, KEY, 400), (KEY, b"wrong", 401), (b"wrong", KEY, 401), (KEY, b"", 401), (b"", b"", 401)],
)
async def test_both_headers_must_show_the_same_key(guarded: Site, bearer: bytes, api_key: bytes, status: int) -> None:
    headers = [*authorization(b"Bearer " + bearer), (b"x-api-key", api_key)]
    answer = await ask(guarded, MESSAGES, headers, "POST", b"{}")
    assert answer.status == status


async def test_an_anthropic_client_is_refused_in_its_own_words(guarded: Site) -> None:
    answer = await ask(guarded, MESSAGES, [(b"x-api-key", b"wrong")], "POST", b"{}")
    assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (401, "error", "authentication_error")
    assert answer.json["request_id"] == answer.headers["request-id"] == answer.headers["streamgauge-request-id"]


async def test_a_browser_asks_first_without_a_key_and_can_read_why_it_is_refused(guarded: Site) -> None:
    asked = [(b"origin", PAGE.encode()), (b"access-control-request-method", b"POST")]
    preflight = await ask(guarded, CHAT, [*asked, (b"access-control-request-headers", b"authorization")], "OPTIONS")
    assert (preflight.status, preflight.headers["access-control-allow-headers"]) == (200, "authorization")
    for method in ("OPTIONS", "POST"):
        refused = await ask(guarded, CHAT, asked[:1], method)
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, PAGE)
    stranger = await ask(guarded, CHAT, [(b"origin", b"https://evil.example"), asked[1]], "OPTIONS")
    assert stranger.status == 400
    assert "access-control-allow-origin" not in stranger.headers


async def test_a_key_is_told_nowhere(guarded: Site) -> None:
    wrong = b"sg-almost-a-real-key"
    good = authorization(b"Bearer " + KEY)
    bodies: list[bytes] = []
    with capture_logs() as logs:
        for value in (b"Bearer " + wrong, b"Bearer " + KEY[:-1], b"Basic " + KEY):
            bodies.append((await ask(guarded, CHAT, authorization(value), "POST", b"{}")).body)
        bodies.append((await ask(guarded, CHAT, good, "POST", b"{}")).body)
        exchange = _chat(guarded, good)
        (await guarded.engine.sequence()).end()
        bodies.append((await exchange).body)
        for path in ("/metrics", "/debug/requests", "/openapi.json", "/v1/models"):
            bodies.append((await ask(guarded, path, good)).body)
    assert [line["status"] for line in logs if line["event"] == "request"] == [401, 401, 401, 400, 200]
    everything = b"".join(bodies) + json.dumps(logs, default=str).encode()
    assert wrong not in everything
    assert KEY[:-1] not in everything
    assert b"Basic" not in everything


def _chat(site: Site, headers: Pairs, **fields: Any) -> Exchange:
    scope = scope_of("POST", CHAT)
    scope["headers"] = [*headers]
    return Exchange(site.app, scope, [json.dumps(chat(**fields)).encode()])
