"""The counts behind a bound: storage that is down, slow or wrong costs a request little, and is then left alone."""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter
from redis.exceptions import RedisError, ResponseError

from server.config import ConfigError, LimitSettings
from server.errors import LimitsUnavailable
from server.ingress.redis_windows import RedisWindows
from server.ingress.windows import MemoryWindows, Taking, Windows

PAUSE_S = 1.0

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class LimitStore:
    """After a failure there are no calls for PAUSE_S seconds; before, each ends in its storage's time."""

    def __init__(self, windows: Windows, settings: LimitSettings, registry: CollectorRegistry) -> None:
        self._windows = windows
        self._refuse = settings.on_storage_failure == "refuse"
        self._failures = Counter(
            "streamgauge_limit_storage_failures", "Calls of the rate limits' storage that failed.", registry=registry
        )
        self._failing = False
        self._quiet_until = 0.0  # no failure since then means that it has recovered
        self._paused_until = 0.0

    async def take(self, key: str, limit: int, amount: int) -> Taking | None:
        """As `Windows.take`; None when nothing could be counted and that is allowed, else LimitsUnavailable."""
        taking = await self._ask(lambda: self._windows.take(key, limit, amount))
        if taking is None and self._refuse:
            raise LimitsUnavailable
        return taking

    async def look(self, key: str, limit: int) -> Taking | None:
        """How it stands; None when that cannot be told."""
        return await self._ask(lambda: self._windows.take(key, limit, 0))

    async def settle(self, key: str, window: int, surplus: int) -> None:
        """As `Windows.settle`; never raises. What cannot be given back fades with its window."""
        await self._ask(lambda: self._windows.settle(key, window, surplus))

    async def close(self) -> None:
        await self._windows.close()

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T | None:
        if monotonic() < self._paused_until:
            return None
        try:
            answer = await call()
        except (RedisError, OSError, ValueError) as error:  # TimeoutError is an OSError
            self._failed(error)
            return None
        if self._failing and monotonic() >= self._quiet_until:
            self._failing = False
            _log.info("limit_storage_recovered")
        return answer

    def _failed(self, error: Exception) -> None:
        self._failures.inc()
        self._quiet_until = monotonic() + PAUSE_S
        # What answers that one key's data is wrong answers quickly, and may be right about the others.
        if not isinstance(error, ResponseError):
            self._paused_until = self._quiet_until
        if not self._failing:
            self._failing = True
            _log.warning("limit_storage_failed", error=type(error).__name__, refusing=self._refuse)


def store_of(settings: LimitSettings, registry: CollectorRegistry) -> LimitStore:
    """The configured storage, not connected yet; raises ConfigError."""
    return LimitStore(_windows_of(settings), settings, registry)


def _windows_of(settings: LimitSettings) -> Windows:
    storage = settings.storage.get_secret_value()
    if storage == "memory":
        return MemoryWindows()
    if storage.startswith(("redis://", "rediss://")):
        return RedisWindows(storage, settings.storage_timeout)
    raise ConfigError("limits.storage: expected memory or redis://host:port/db")
