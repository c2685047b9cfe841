"""What one request may use: tokens are set aside before it runs, and what it did not use comes back at its end."""

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry

from server.errors import RateLimited
from server.ingress.account import Account
from server.ingress.key import Key, Limits
from server.ingress.limit_headers import Standing, duration, limit_headers
from server.ingress.quotas import Quotas
from server.request import ANYBODY, LOW, Caller
from tests.support.site import settings_of

NOW = 1_800_000_020.0  # 40 s of a minute are left


class Holder(Caller):
    owner = "team"
    rank = LOW
    timeout = 9.0

    def clamp(self, priority: int) -> int:
        return max(priority, 3)


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


def at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW + seconds)


def quotas_of(*assignments: str) -> Quotas:
    return Quotas(settings_of("limits.storage_timeout=20", *assignments).limits, CollectorRegistry())


def account(quotas: Quotas, **limits: int) -> Account:
    found = quotas.account(Holder(), Key("team", "", limits=Limits(**limits)))
    assert found is not None
    return found


async def remaining(quotas: Quotas, tokens: int) -> str:
    return (await account(quotas, tokens_per_minute=tokens).headers())["x-ratelimit-remaining-tokens"]


async def test_it_is_its_caller_in_all_but_limits() -> None:
    mine = account(quotas_of(), tokens_per_minute=1)
    assert (mine.owner, mine.name, mine.rank, mine.timeout) == ("team", "team", LOW, 9.0)
    assert [mine.clamp(priority) for priority in (-5, 7)] == [3, 7]


async def test_where_nothing_is_limited_there_is_no_account() -> None:
    quotas = quotas_of()
    assert quotas.account(Holder(), Key("team", "")) is None
    assert quotas.account(ANYBODY, None) is None


async def test_a_key_has_its_own_limits_and_the_general_ones_for_the_rest() -> None:
    quotas = quotas_of("limits.requests_per_minute=5", "limits.tokens_per_minute=50")
    assert account(quotas, tokens_per_minute=7).limits == Limits(5, 7, None)
    anonymous = quotas.account(ANYBODY, None)
    assert anonymous is not None
    assert (anonymous.name, anonymous.limits) == ("anonymous", Limits(5, 50, None))


async def test_what_a_request_did_not_use_is_free_again() -> None:
    quotas = quotas_of()
    mine = account(quotas, tokens_per_minute=100)
    await mine.reserve(90)
    assert await remaining(quotas, 100) == "10"
    await mine.settle(90, 25)
    assert await remaining(quotas, 100) == "75"


async def test_what_a_request_used_beyond_its_reservation_is_charged() -> None:
    quotas = quotas_of()
    mine = account(quotas, tokens_per_minute=100)
    await mine.reserve(10)
    await mine.settle(10, 250)
    assert await remaining(quotas, 100) == "0"
    with pytest.raises(RateLimited):
        await account(quotas, tokens_per_minute=100).reserve(1)


async def test_a_reservation_is_settled_once_and_one_that_was_refused_never() -> None:
    quotas = quotas_of()
    mine, refused = account(quotas, tokens_per_minute=100), account(quotas, tokens_per_minute=100)
    await mine.reserve(90)
    with pytest.raises(RateLimited):
        await refused.reserve(20)
    await refused.settle(20, 0)
    assert await remaining(quotas, 100) == "10"
    for _ in range(2):
        await mine.settle(90, 50)
    assert await remaining(quotas, 100) == "50"


async def test_fifty_requests_at_once_reserve_no_more_than_the_limit() -> None:
    quotas = quotas_of()
    accounts = [account(quotas, tokens_per_minute=1000) for _ in range(50)]
    results = await asyncio.gather(*(each.reserve(30) for each in accounts), return_exceptions=True)
    assert sum(result is None for result in results) == 33
    assert sum(isinstance(result, RateLimited) for result in results) == 17
    await asyncio.gather(*(each.settle(30, 0) for each in accounts))
    assert await remaining(quotas, 1000) == "1000"


async def test_a_refusal_says_of_what_how_much_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = quotas_of()
    await account(quotas, tokens_per_minute=100).reserve(90)
    at(monkeypatch, 10)
    with pytest.raises(RateLimited) as refusal:
        await account(quotas, tokens_per_minute=100).reserve(50)
    # The minute lasts 30 s more; of 90 tokens no more than 50 may count: a share of 50/90 and less than one token.
    reset_s = 30 + 60 * (1 - 51 / 90) + 0.001
    assert refusal.value.figures == {"reason": "tokens", "limit": 100, "remaining": 10, "reset_s": round(reset_s, 3)}
    assert refusal.value.retry_after == 57
    assert refusal.value.message == "This API key has reached its limit of 100 tokens in a minute."
    at(monkeypatch, 10 + reset_s - 0.1)
    with pytest.raises(RateLimited):
        await account(quotas, tokens_per_minute=100).reserve(50)
    at(monkeypatch, 10 + reset_s)
    await account(quotas, tokens_per_minute=100).reserve(50)


async def test_a_request_that_can_never_be_served_says_so_and_takes_nothing() -> None:
    quotas = quotas_of()
    mine = account(quotas, tokens_per_minute=100)
    with pytest.raises(RateLimited) as refusal:
        await mine.reserve(101)
    assert "101 tokens" in refusal.value.message
    assert "Shorten the prompt" in refusal.value.message
    assert refusal.value.retry_after == 120
    assert (await mine.headers())["x-should-retry"] == "false"
    assert await remaining(quotas, 100) == "100"


async def test_keys_do_not_share_their_counts() -> None:
    class Other(Holder):
        owner = "other"

    quotas = quotas_of("limits.tokens_per_minute=10")
    for holder in (Holder(), Other()):
        found = quotas.account(holder, Key(holder.name, ""))
        assert found is not None
        await found.reserve(10)


async def test_without_a_token_limit_nothing_is_reserved() -> None:
    mine = account(quotas_of(), requests_per_minute=1)
    await mine.reserve(10**9)
    await mine.settle(10**9, 5)
    assert list(await mine.headers()) == [f"x-ratelimit-{what}-requests" for what in ("limit", "remaining", "reset")]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0004, "0s"),
        (0.02, "20ms"),
        (0.9996, "1s"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.999, "59.999s"),
        (60, "1m0s"),
        (100.25, "1m40.25s"),
        (360, "6m0s"),
    ],
)
def test_durations_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_limits_headers_are_openais() -> None:
    assert limit_headers("tokens", Standing(100, 40, 6.25)) == {
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "40",
        "x-ratelimit-reset-tokens": "6.25s",
    }
