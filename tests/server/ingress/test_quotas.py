"""The gate at the ASGI boundary: who is counted, what a slot lasts for, and what everybody is told about it."""

import asyncio
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from server.api.errors import error_response
from server.config import ConfigError
from server.errors import ServeError
from server.ingress.account import Account
from server.ingress.key import Key, Limits
from server.ingress.quotas import QuotaGate, Quotas
from server.request import Caller
from tests.support.asgi import Exchange, Site
from tests.support.site import settings_of

PATH = "/v1/generate"
NOW = 1_800_000_020.0  # 40 s of a minute are left


class Holder(Caller):
    def __init__(self, key: Key) -> None:
        self.owner = key.name


class Door:
    """An application behind a gate, called with a key of the test's choosing."""

    def __init__(self, *assignments: str, key: Key | None = None) -> None:
        settings = settings_of("limits.storage_timeout=20", *assignments).limits
        self.key = key
        self.tokens = 0  # what each request reserves
        self.inside = 0
        self.callers: list[Any] = []
        self.body_was_read = False
        self.failure: BaseException | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._gate = QuotaGate(self._app, {PATH}, Quotas(settings, CollectorRegistry()), error_response)
        self.site = Site(self._with_key(self._gate))

    def open(self) -> Exchange:
        return self.site.open(PATH, b"{}")

    async def post(self) -> Exchange:
        return await self.open()

    def _with_key(self, app: ASGIApp) -> ASGIApp:
        async def keyed(scope: Scope, receive: Receive, send: Send) -> None:
            if self.key is not None:
                scope["state"].update(key=self.key, caller=Holder(self.key))

            async def noting() -> Any:
                self.body_was_read = True
                return await receive()

            await app(scope, noting, send)

        return keyed

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.inside += 1
        caller = scope["state"].get("caller")
        self.callers.append(caller)
        try:
            if self.tokens:
                await caller.reserve(self.tokens)
            await self.may_end.wait()
            if self.failure is not None:
                raise self.failure
            await PlainTextResponse("ok")(scope, receive, send)
        except ServeError as error:
            await error_response(scope, error)(scope, receive, send)
        finally:
            self.inside -= 1


def limited(**limits: int) -> Key:
    return Key("team", "", limits=Limits(**limits))


def told(exchange: Exchange) -> dict[str, str]:
    """The headers that speak of limits."""
    named = ("x-ratelimit-", "x-should-retry", "retry-after")
    return {name: value for name, value in exchange.headers.items() if name.startswith(named)}


def stop_the_clocks(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW + seconds)
    monkeypatch.setattr(time, "monotonic", lambda: 1000 + seconds)


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_the_clocks(monkeypatch, 0)


async def test_every_answer_tells_how_the_limits_stand() -> None:
    door = Door(key=limited(requests_per_minute=10, tokens_per_minute=1000))
    door.tokens = 600
    answer = await door.post()
    assert answer.status == 200
    # One request of ten is gone until it has faded below one, at the minute's end; of 600 tokens the last one fades
    # when less than a 600th of the next minute is left.
    assert told(answer) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "40.001s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "400",
        "x-ratelimit-reset-tokens": "1m39.901s",
    }


async def test_a_request_over_the_limit_is_refused_before_its_body_is_read() -> None:
    door = Door(key=limited(requests_per_minute=2, tokens_per_minute=1000))
    assert [(await door.post()).status for _ in range(2)] == [200, 200]
    door.body_was_read = False
    refused = await door.post()
    assert refused.status == 429
    assert not door.body_was_read
    assert refused.json == {
        "error": {
            "message": "This API key has reached its limit of 2 requests in a minute.",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
            "reason": "requests",
            "limit": 2,
            "remaining": 0,
            "reset_s": 40.001,
        }
    }
    assert told(refused) == {
        "retry-after": "41",
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m10.001s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "1000",
        "x-ratelimit-reset-tokens": "0s",
    }


async def test_a_client_that_keeps_knocking_is_let_in_as_soon_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere a hit has locked a key out for minutes; here refusals count nothing, and are not remembered longer."""
    door = Door(key=limited(requests_per_minute=3))
    stop_the_clocks(monkeypatch, 0)
    assert [(await door.post()).status for _ in range(50)] == [200] * 3 + [429] * 47
    stop_the_clocks(monkeypatch, 40)
    assert (await door.post()).headers["retry-after"] == "1"  # 3 are less than 3 just after
    stop_the_clocks(monkeypatch, 40 + 21)
    assert [(await door.post()).status for _ in range(3)] == [200, 200, 429]  # 39/60 of 3 are 1


async def test_a_key_that_is_given_more_is_let_in_at_once() -> None:
    door = Door(key=limited(requests_per_minute=1))
    assert [(await door.post()).status for _ in range(2)] == [200, 429]
    door.key = limited(requests_per_minute=2)
    assert (await door.post()).status == 200


async def test_a_slot_is_held_until_the_answer_has_left() -> None:
    door = Door(key=limited(concurrent_requests=2))
    door.may_end.clear()
    first, second = door.open(), door.open()
    refused = await door.post()
    assert refused.status == 429
    error = refused.json["error"]
    assert (error["reason"], error["limit"], error["remaining"]) == ("concurrent_requests", 2, 0)
    assert 1 <= int(refused.headers["retry-after"]) <= 120
    door.may_end.set()
    await first
    await second
    assert (await door.post()).status == 200


@pytest.mark.parametrize("failure", [RuntimeError(), asyncio.CancelledError()], ids=repr)
async def test_a_slot_comes_back_however_the_request_ends(failure: BaseException) -> None:
    door = Door(key=limited(concurrent_requests=1))
    door.failure = failure
    for _ in range(3):
        with pytest.raises(type(failure)):
            await door.open()
    door.failure = None
    assert (await door.post()).status == 200


async def test_a_request_that_is_refused_gives_its_slot_back() -> None:
    door = Door(key=limited(concurrent_requests=1, requests_per_minute=1))
    reasons = [
        (await door.post()).json["error"]["reason"] if number else (await door.post()).status for number in (0, 1, 2)
    ]
    assert reasons == [200, "requests", "requests"]


async def test_a_refusal_inside_is_told_with_the_same_headers() -> None:
    door = Door(key=limited(tokens_per_minute=100))
    door.tokens = 60
    assert (await door.post()).status == 200
    refused = await door.post()
    assert refused.status == 429
    assert refused.json["error"]["reason"] == "tokens"
    assert refused.headers["x-ratelimit-remaining-tokens"] == "40"
    assert 1 <= int(refused.headers["retry-after"]) <= 120
    door.tokens = 101
    hopeless = await door.post()
    assert (hopeless.status, hopeless.headers["x-should-retry"]) == (429, "false")


async def test_only_generation_is_counted() -> None:
    door = Door(key=limited(requests_per_minute=1))
    for exchange in (door.site.send("GET", PATH), door.site.send("POST", "/v1/models"), door.site.send("GET", "/")):
        assert (await exchange).status == 200
        assert told(exchange) == {}
    assert not any(isinstance(caller, Account) for caller in door.callers)
    assert (await door.post()).status == 200


async def test_where_nothing_is_limited_the_caller_stays_who_it_was_and_no_storage_is_asked() -> None:
    door = Door("limits.storage=redis://127.0.0.1:1/0", "limits.on_storage_failure=refuse", key=limited())
    answer = await door.post()
    assert (answer.status, told(answer)) == (200, {})
    assert isinstance(door.callers[0], Holder)


async def test_without_keys_the_general_limits_hold_for_everybody_together() -> None:
    door = Door("limits.requests_per_minute=1")
    assert [(await door.post()).status for _ in range(2)] == [200, 429]


async def test_what_is_not_http_passes() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def nothing(*_: Any) -> Any:
        raise AssertionError("nothing is sent or received")

    gate = QuotaGate(app, {PATH}, Quotas(settings_of().limits, CollectorRegistry()), error_response)
    await gate({"type": "lifespan"}, nothing, nothing)
    assert seen == [{"type": "lifespan"}]


@pytest.mark.parametrize("storage", ["redis", "memcached://127.0.0.1", "http://127.0.0.1", ""])
def test_storage_of_another_kind_is_refused_at_the_start(storage: str) -> None:
    with pytest.raises(ConfigError, match=r"limits\.storage"):
        Quotas(settings_of(f"limits.storage='{storage}'").limits, CollectorRegistry())
