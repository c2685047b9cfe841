"""Counts in Redis: shared by servers, and what becomes of requests when it is down, hangs, or holds something else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from server.errors import LimitsUnavailable, RateLimited
from server.ingress.account import Account
from server.ingress.key import Key, Limits
from server.ingress.limit_store import PAUSE_S
from server.ingress.quotas import Quotas
from server.request import Caller
from tests.support.redis_server import RedisServer, redis_server
from tests.support.site import settings_of
from tests.support.waiting import DEADLINE_S, turns

LIMIT = 100
CURRENT = "streamgauge:{tokens/team}"
PREVIOUS = f"{CURRENT}/-1"


class Holder(Caller):
    def __init__(self, name: str) -> None:
        self.owner = name


class Server:
    """What one server has of a shared storage."""

    def __init__(self, redis: RedisServer, *assignments: str) -> None:
        self._registry = CollectorRegistry()
        storage = (f"limits.storage={redis.url}", "limits.storage_timeout=0.5", *assignments)
        self.quotas = Quotas(settings_of(*storage).limits, self._registry)

    @property
    def failures(self) -> float:
        return self._registry.get_sample_value("streamgauge_limit_storage_failures_total") or 0.0

    def account(self, name: str = "team", requests: int | None = None) -> Account:
        found = self.quotas.account(Holder(name), Key(name, "", limits=Limits(requests, LIMIT)))
        assert found is not None
        return found

    async def remaining(self, name: str = "team") -> int | None:
        """None while that cannot be told."""
        told = (await self.account(name).headers()).get("x-ratelimit-remaining-tokens")
        return int(told) if told is not None else None

    async def until_it_counts(self, name: str = "team") -> None:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if await self.remaining(name) is not None:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def server_of(redis: RedisServer, *assignments: str) -> AsyncIterator[Server]:
    server = Server(redis, *assignments)
    yield server
    await server.quotas.close()


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
async def server(redis: RedisServer) -> AsyncIterator[Server]:
    async with server_of(redis) as made:
        yield made


@pytest.fixture
async def strict(redis: RedisServer) -> AsyncIterator[Server]:
    async with server_of(redis, "limits.on_storage_failure=refuse") as made:
        yield made


async def test_servers_share_what_a_key_may_use(redis: RedisServer) -> None:
    async with (
        server_of(redis, "limits.storage_timeout=20") as one,
        server_of(redis, "limits.storage_timeout=20") as two,
    ):
        accounts = [server.account() for server in (one, two) for _ in range(25)]
        results = await asyncio.gather(*(each.reserve(7) for each in accounts), return_exceptions=True)
        assert sum(result is None for result in results) == LIMIT // 7
        assert sum(isinstance(result, RateLimited) for result in results) == 50 - LIMIT // 7
        await asyncio.gather(*(each.settle(7, 0) for each in accounts))
        assert [await one.remaining(), await two.remaining()] == [LIMIT, LIMIT]


async def test_a_burst_shares_round_trips_on_one_connection(redis: RedisServer) -> None:
    """A connection for each call would let a burst run into the time limit, and out of every other."""
    async with server_of(redis, "limits.storage_timeout=20") as server:
        before = (await redis.client.info("stats"))["total_connections_received"]
        results = await asyncio.gather(*(server.account().reserve(1) for _ in range(600)), return_exceptions=True)
        assert sum(result is None for result in results) == LIMIT
        after = (await redis.client.info("stats"))["total_connections_received"]
        assert after - before == 1


async def test_a_request_that_is_cancelled_while_it_is_counted_harms_no_other(redis: RedisServer) -> None:
    async with server_of(redis, "limits.storage_timeout=20") as server:
        await server.account().reserve(1)
        redis.stop()
        first, second = (asyncio.ensure_future(server.account().reserve(30)) for _ in range(2))
        await turns()
        first.cancel()
        redis.go_on()
        await second
        assert await server.remaining() == LIMIT - 1 - 30 - 30  # both had been sent
        assert server.failures == 0


async def test_counts_expire_by_themselves(redis: RedisServer, server: Server) -> None:
    await server.account().reserve(10)
    assert 60_000 < await redis.client.pttl(CURRENT) <= 120_000
    assert await redis.client.keys() == [CURRENT.encode()]


async def test_a_count_that_would_never_expire_locks_nobody_out(redis: RedisServer, server: Server) -> None:
    await redis.client.set(CURRENT, 10**6)
    await redis.client.set(PREVIOUS, 10**6)
    await server.account().reserve(10)
    assert await server.remaining() == LIMIT - 10


async def test_what_a_restart_has_forgotten_is_not_given_back_twice(redis: RedisServer, server: Server) -> None:
    before = server.account()
    await before.reserve(80)
    await redis.client.flushall()
    await before.settle(80, 0)
    await server.account().reserve(LIMIT)
    assert await server.remaining() == 0


async def test_while_it_is_down_requests_pass_uncounted_and_are_charged_when_it_is_back(
    redis: RedisServer, server: Server
) -> None:
    early, late = server.account(), server.account(requests=5)
    await early.reserve(10)
    with capture_logs() as logs:
        await redis.kill()
        for _ in range(20):
            await server.account(requests=5).enter()
            await server.account().reserve(LIMIT)
        await late.enter()
        await late.reserve(LIMIT)
        assert await late.headers() == {}
        await early.settle(10, 0)  # lost, and nobody hears of it
        assert 1 <= server.failures < 20
        await redis.start()
        await server.until_it_counts()
        await late.settle(LIMIT, 30)
        assert await server.remaining() == LIMIT - 30
        await asyncio.sleep(PAUSE_S)
        await server.remaining()
    assert [log["event"] for log in logs] == ["limit_storage_failed", "limit_storage_recovered"]


async def test_while_it_is_down_requests_are_refused_where_the_operator_wants_that(
    redis: RedisServer, strict: Server
) -> None:
    await redis.kill()
    for _ in range(2):
        account = strict.account(requests=5)
        with pytest.raises(LimitsUnavailable):
            await account.enter()
        with pytest.raises(LimitsUnavailable):
            await account.reserve(1)
        await account.settle(1, 1)
        assert await account.headers() == {}
    await redis.start()
    await strict.until_it_counts()
    await strict.account(requests=5).enter()


async def test_one_that_hangs_is_left_alone_and_its_late_answers_are_nobodys(
    redis: RedisServer, server: Server
) -> None:
    await asyncio.gather(*(server.account(name).reserve(20) for name in ("team", "a", "b", "c")))
    redis.stop()
    try:
        await asyncio.gather(*(server.account(name).reserve(LIMIT) for name in ("team", "a", "b", "c")))
        failures = server.failures
        assert failures == 4
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(2000):  # each would take half a second
                await server.account().reserve(LIMIT)
        assert server.failures < 100
    finally:
        redis.go_on()
    await server.until_it_counts()
    await server.account("d").reserve(60)
    # What was sent before it hung may have been counted since; what is read now is no answer to that.
    assert await server.remaining("d") == LIMIT - 60
    assert await server.remaining("e") == LIMIT


@pytest.mark.parametrize("wrong", ["list", "text"])
async def test_wrong_data_under_a_key_is_that_keys_trouble_alone(
    redis: RedisServer, server: Server, strict: Server, wrong: str
) -> None:
    await (redis.client.rpush(CURRENT, "x") if wrong == "list" else redis.client.set(CURRENT, "x"))
    await redis.client.pexpire(CURRENT, 100_000)
    with capture_logs() as logs:
        for _ in range(3):
            await server.account().reserve(LIMIT)
            await server.account("other").reserve(1)
    assert [log["event"] for log in logs] == ["limit_storage_failed"]
    assert server.failures == 3
    assert await server.remaining("other") == LIMIT - 3
    with pytest.raises(LimitsUnavailable):
        await strict.account().reserve(1)
    await strict.account("other").reserve(1)
    await redis.client.delete(CURRENT)
    await strict.account().reserve(1)
    assert await server.remaining() == LIMIT - 1
