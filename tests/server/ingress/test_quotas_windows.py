"""The sliding window over both storages, against a model that is one dictionary."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import floor, inf
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from limits import RateLimitItemPerMinute
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from server.ingress.redis_windows import RedisWindows
from server.ingress.windows import WINDOW_S, Level, MemoryWindows, Taking, Windows
from tests.support.redis_server import RedisServer, redis_server

LIMIT = 1000
KEY = "tokens/team"
START = 1_800_000_015.0


class Timed(ABC):
    """Windows whose time a test moves on."""

    slack = 1  # how far a count may be off: here by rounding

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    @abstractmethod
    def now(self) -> float: ...

    @abstractmethod
    async def advance(self, seconds: float) -> None: ...

    @abstractmethod
    def begin(self, now: float, began: float) -> float:
        """When the window of `now` began, given when the last one had."""

    async def take(self, amount: int) -> Taking:
        return await self.windows.take(KEY, LIMIT, amount)

    async def settle(self, taking: Taking, surplus: int) -> None:
        await self.windows.settle(KEY, taking.window, surplus)

    async def used(self) -> int:
        return (await self.take(0)).level.used


class TimedMemory(Timed):
    """The library reads the wall clock, so that is what is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(MemoryWindows())
        self._now = START
        monkeypatch.setattr(time, "time", self.now)

    def now(self) -> float:
        return self._now

    async def advance(self, seconds: float) -> None:
        self._now += seconds

    def begin(self, now: float, began: float) -> float:
        return floor(now / WINDOW_S) * WINDOW_S


class TimedRedis(Timed):
    """Redis' clock cannot be moved, but what expires later can expire sooner, and then it began earlier."""

    slack = 60  # what fades in some seconds: a busy machine

    def __init__(self, server: RedisServer, windows: Windows) -> None:
        super().__init__(windows)
        self._client = server.client
        self._shift = 0.0
        self._taken_at: dict[Taking, float] = {}

    def now(self) -> float:
        return monotonic() + self._shift

    async def advance(self, seconds: float) -> None:
        self._shift += seconds
        for key in await self._client.keys():
            left = await self._client.pttl(key) - round(seconds * 1000)
            await (self._client.pexpire(key, left) if left > 0 else self._client.delete(key))

    def begin(self, now: float, began: float) -> float:
        if now - began < WINDOW_S:
            return began
        return began + WINDOW_S if now - began < 2 * WINDOW_S else now

    async def take(self, amount: int) -> Taking:
        taking = await super().take(amount)
        self._taken_at[taking] = self._shift
        return taking

    async def settle(self, taking: Taking, surplus: int) -> None:
        earlier = round((self._shift - self._taken_at[taking]) * 1000)
        await self.windows.settle(KEY, taking.window - earlier, surplus)


@asynccontextmanager
async def timed_redis(folder: Path) -> AsyncIterator[TimedRedis]:
    async with redis_server(folder) as server:
        windows = RedisWindows(server.url, timeout=20)
        yield TimedRedis(server, windows)
        await windows.close()


@pytest.fixture(params=["memory", "redis"])
async def timed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Timed]:
    if request.param == "memory":
        yield TimedMemory(monkeypatch)
        return
    async with timed_redis(tmp_path) as timed:
        yield timed


async def fill(timed: Timed) -> Taking:
    """All of the limit, at the beginning of a window: the next one begins in a minute less some seconds."""
    await timed.advance(WINDOW_S - START % WINDOW_S + 0.01)
    taking = await timed.take(LIMIT)
    assert taking.granted
    return taking


async def test_what_is_taken_counts_until_the_limit_and_no_further(timed: Timed) -> None:
    assert (await timed.take(LIMIT - 1)).granted
    refused = await timed.take(2)
    assert not refused.granted
    assert refused.level.used == LIMIT - 1
    assert (await timed.take(1)).granted
    assert await timed.used() == LIMIT


async def test_fifty_at_once_never_exceed_the_limit_nor_leave_room_unused(timed: Timed) -> None:
    takings = await asyncio.gather(*(timed.take(30) for _ in range(50)))
    assert sum(taking.granted for taking in takings) == LIMIT // 30
    assert await timed.used() == LIMIT // 30 * 30


async def test_room_comes_back_steadily_and_not_once_a_minute(timed: Timed) -> None:
    await fill(timed)
    seen = []
    for _ in range(9):
        await timed.advance(15)
        seen.append(await timed.used())
    expected = [LIMIT, LIMIT, LIMIT, LIMIT, 750, 500, 250, 0, 0]
    assert all(abs(used - model) <= timed.slack for used, model in zip(seen, expected, strict=True)), seen


async def test_there_is_room_when_the_wait_foretold_is_over(timed: Timed) -> None:
    await fill(timed)
    await timed.advance(30)
    refused = await timed.take(400)
    wait = refused.level.wait(LIMIT, 400)
    assert 30 < wait < 60
    await timed.advance(wait + 0.001)
    assert (await timed.take(400)).granted


async def test_a_surplus_is_free_again_at_once(timed: Timed) -> None:
    taking = await fill(timed)
    await timed.settle(taking, 600)
    assert await timed.used() == 400
    assert (await timed.take(600)).granted


async def test_a_surplus_of_the_minute_before_makes_room_there_alone(timed: Timed) -> None:
    taking = await fill(timed)
    await timed.advance(WINDOW_S)
    await timed.advance(30)
    await timed.take(300)
    await timed.settle(taking, 800)
    assert abs(await timed.used() - (300 + 200 // 2)) <= timed.slack


async def test_a_surplus_that_no_longer_counts_makes_no_room(timed: Timed) -> None:
    taking = await fill(timed)
    await timed.advance(WINDOW_S)
    await timed.take(0)
    await timed.advance(WINDOW_S)
    await timed.take(700)
    await timed.settle(taking, LIMIT)
    assert await timed.used() == 700


async def test_in_memory_nothing_is_left_of_counts_that_have_faded(monkeypatch: pytest.MonkeyPatch) -> None:
    timed, windows = TimedMemory(monkeypatch), MemoryWindows()
    taking = await windows.take(KEY, LIMIT, 100)
    await timed.advance(10 * WINDOW_S)
    await windows.get(f"{KEY}/{taking.window}")  # the library forgets what has expired when it is asked for
    await windows.settle(KEY, taking.window, 100)
    assert dict(windows.storage) == {}


async def test_what_was_used_beyond_the_reservation_is_charged_now(timed: Timed) -> None:
    taking = await timed.take(100)
    await timed.settle(taking, -250)
    assert await timed.used() == 350
    await timed.advance(3 * WINDOW_S)
    await timed.settle(taking, -250)
    assert await timed.used() == 250


async def test_a_surplus_greater_than_the_count_leaves_nothing_owed(timed: Timed) -> None:
    taking = await timed.take(100)
    await timed.settle(taking, 500)
    assert await timed.used() == 0
    assert not (await timed.take(LIMIT + 1)).granted


async def test_the_counts_are_what_the_library_itself_reads(timed: Timed) -> None:
    await fill(timed)
    await timed.advance(WINDOW_S + 20)
    await timed.take(50)
    assert isinstance(timed.windows, MemoryWindows | RedisWindows)
    previous, _, current, expires_in = await timed.windows.get_sliding_window(KEY, WINDOW_S)
    level = (await timed.take(0)).level
    assert (previous, current) == (level.previous, level.current) == (LIMIT, 50)
    assert level.left_s == pytest.approx(expires_in - WINDOW_S, abs=5)


async def test_the_librarys_own_limiter_counts_along(timed: Timed) -> None:
    assert isinstance(timed.windows, MemoryWindows | RedisWindows)
    item = RateLimitItemPerMinute(LIMIT)
    await SlidingWindowCounterRateLimiter(timed.windows).hit(item, "team", cost=LIMIT)
    assert not (await timed.windows.take(item.key_for("team"), LIMIT, 1)).granted


@dataclass
class Reserved:
    taking: Taking
    amount: int
    began: float


class Model:
    """What each window was charged, by when it began."""

    def __init__(self, timed: Timed) -> None:
        self.timed = timed
        self.counts: defaultdict[float, int] = defaultdict(int)
        self.began = -inf

    def used(self) -> int:
        now = self.timed.now()
        self.began = self.timed.begin(now, self.began)
        return (
            floor(self.counts[self.began - WINDOW_S] * (self.began + WINDOW_S - now) / WINDOW_S + 1e-9)
            + (self.counts[self.began])
        )

    def give_back(self, reserved: Reserved, surplus: int) -> None:
        self.used()
        if surplus < 0:
            self.counts[self.began] -= surplus
        elif self.began - reserved.began < 1.5 * WINDOW_S:
            self.counts[reserved.began] -= surplus


# A window of Redis' begins when something is first counted, so each step counts something.
# Multiples of 11 s, few enough never to come near the end of a minute: there Redis' clock and the model's would differ.
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 11, 22, 33, 66]), st.integers(1, 600), st.integers(0, 700)), min_size=1, max_size=8
)


async def follow(timed: Timed, steps: list[tuple[int, int, int]]) -> None:
    """Each step: let time pass, reserve, and every other time settle the oldest reservation, perhaps for more."""
    model = Model(timed)
    open_: list[Reserved] = []
    for number, (seconds, amount, used) in enumerate(steps):
        await timed.advance(seconds)
        before = model.used()
        taking = await timed.take(amount)
        if taking.granted:
            assert before + amount <= LIMIT + timed.slack
            model.counts[model.began] += amount
            open_.append(Reserved(taking, amount, model.began))
        else:
            assert before + amount > LIMIT - timed.slack
        if number % 2 and open_:
            oldest = open_.pop(0)
            await timed.settle(oldest.taking, oldest.amount - used)
            model.give_back(oldest, oldest.amount - used)
        assert abs(await timed.used() - model.used()) <= timed.slack


@given(steps=STEPS)
@settings(max_examples=200)
async def test_in_memory_every_count_is_the_models(steps: list[tuple[int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        await follow(TimedMemory(monkeypatch), steps)


@given(steps=STEPS)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_in_redis_every_count_is_the_models(shared_redis: RedisServer, steps: list[tuple[int, int, int]]) -> None:
    await shared_redis.client.flushall()
    windows = RedisWindows(shared_redis.url, timeout=20)
    try:
        await follow(TimedRedis(shared_redis, windows), steps)
    finally:
        await windows.close()


@pytest.fixture
async def shared_redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        yield server


LEVELS = st.builds(Level, st.integers(0, 3000), st.integers(0, 3000), st.floats(0.01, WINDOW_S))


@given(level=LEVELS, limit=st.integers(1, 3000), amount=st.integers(1, 3000))
def test_the_wait_is_as_long_as_needed_and_no_longer(level: Level, limit: int, amount: int) -> None:
    wait = level.wait(limit, amount)
    if amount > limit:
        assert wait == inf
        return
    assert wait <= 2 * WINDOW_S + 0.01
    assert level.after(wait).used + amount <= limit
    if wait > 0.01:
        assert level.after(wait - 0.01).used + amount > limit
