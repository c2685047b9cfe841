"""Pages of other origins: the allowed ones may call and read, the others learn nothing, and no cookies come along."""

import json
from collections.abc import AsyncIterator

import pytest

from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, Served, chat, serving

PAGE = "https://app.example"
STRANGER = "https://app.example.evil.example"
# What openai's package for JavaScript adds to a request from a browser, and what resuming needs.
OF_AN_SDK = "authorization,content-type,last-event-id,x-request-id,x-stainless-arch,x-stainless-retry-count"


@pytest.fixture
async def open_site(engine: FakeEngine) -> AsyncIterator[Served[FakeEngine]]:
    async with serving(engine, f"http.cors_origins=[{PAGE}, 'http://localhost:3000']") as served:
        yield served


def ask(site: Served[FakeEngine], method: str, origin: str, body: bytes = b"", path: str = CHAT) -> Exchange:
    headers = {"Origin": origin, "Content-Type": "application/json"}
    return Exchange(site.app, scope_of(method, path, headers), [body])


def preflight(site: Served[FakeEngine], origin: str, method: str = "POST") -> Exchange:
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": OF_AN_SDK}
    return Exchange(site.app, scope_of("OPTIONS", CHAT, {"Origin": origin, **asked}), [b""])


def granted(exchange: Exchange) -> dict[str, str]:
    """What an answer allows a browser."""
    return {name: value for name, value in exchange.headers.items() if name.startswith("access-control-")}


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("origin", [PAGE, "http://localhost:3000"])
async def test_a_page_of_an_allowed_origin_may_send_what_an_sdk_sends(
    open_site: Served[FakeEngine], origin: str, method: str
) -> None:
    answer = await preflight(open_site, origin, method)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-headers"] == OF_AN_SDK
    assert method in answer.headers["access-control-allow-methods"].split(", ")
    assert "Origin" in answer.headers["vary"]


@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE"])
async def test_methods_that_no_route_has_are_refused(open_site: Served[FakeEngine], method: str) -> None:
    assert (await preflight(open_site, PAGE, method)).status == 400


@pytest.mark.parametrize("origin", [STRANGER, "http://app.example", f"{PAGE}:8443", "null", "", "*"])
async def test_a_page_of_another_origin_is_allowed_nothing(open_site: Served[FakeEngine], origin: str) -> None:
    refused = await preflight(open_site, origin)
    assert refused.status == 400
    assert "access-control-allow-origin" not in refused.headers
    answer = await ask(open_site, "GET", origin, path="/v1/models")
    assert "access-control-allow-origin" not in answer.headers


async def test_a_stream_for_a_page_is_the_stream_for_anyone(open_site: Served[FakeEngine]) -> None:
    bodies = []
    for index, origin in enumerate((PAGE, STRANGER)):
        exchange = ask(open_site, "POST", origin, json.dumps(chat(stream=True)).encode())
        sequence = await open_site.engine.sequence(index)
        sequence.say("one")
        sequence.say(" two")
        sequence.end()
        await exchange
        assert exchange.headers.get("access-control-allow-origin") == (PAGE if origin == PAGE else None)
        bodies.append([event if isinstance(event, str) else event["choices"] for event in exchange.events])
    assert bodies[0] == bodies[1]


async def test_a_page_can_read_the_headers_that_explain_an_answer(open_site: Served[FakeEngine]) -> None:
    answer = await ask(open_site, "POST", PAGE, b"{")
    exposed = answer.headers["access-control-expose-headers"].lower().split(", ")
    assert {"x-request-id", "server-timing", "retry-after", "x-ratelimit-reset-tokens"} <= set(exposed)
    assert answer.headers["x-request-id"]


async def test_a_page_can_read_errors(open_site: Served[FakeEngine]) -> None:
    answer = await ask(open_site, "POST", PAGE, b"{")
    assert answer.status == 400
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.error["code"] == "invalid_json"


async def test_any_origin_may_be_allowed_but_never_with_credentials(engine: FakeEngine) -> None:
    async with serving(engine, "http.cors_origins=['*']") as site:
        for answer in (await preflight(site, STRANGER), await ask(site, "GET", STRANGER, path="/v1/models")):
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in answer.headers


async def test_named_origins_get_no_credentials_either(open_site: Served[FakeEngine]) -> None:
    for answer in (await preflight(open_site, PAGE), await ask(open_site, "GET", PAGE, path="/v1/models")):
        assert "access-control-allow-credentials" not in answer.headers


async def test_without_the_setting_no_page_is_allowed_anything(site: Served[FakeEngine]) -> None:
    assert granted(await preflight(site, PAGE)) == {}
    assert granted(await ask(site, "GET", PAGE, path="/v1/models")) == {}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_foreign_page_cannot_start_a_generation_without_being_asked_about(
    site: Served[FakeEngine], kind: str
) -> None:
    # A `no-cors` fetch needs no leave for these types: any page on the web could have spent a local engine's time.
    headers = {"content-type": kind, "origin": "https://elsewhere.example"}
    exchange = await Exchange(site.app, scope_of("POST", CHAT, headers), [json.dumps(chat()).encode()])
    assert (exchange.status, exchange.error["code"]) == (415, "unsupported_media_type")
    assert not site.engine.sequences
