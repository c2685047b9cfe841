"""Deadlines of all connections under one timer: a timer for each would cost every request."""

import asyncio
from time import monotonic_ns
from typing import Protocol

from server.config import HttpSettings

LONGEST_PAUSE_S = 0.5


class Expiring(Protocol):
    def expire(self, now_ns: int) -> None:
        """Act on whatever has lasted too long at `now_ns`, monotonic."""


class Sweeper:
    """Asks every open connection a few times a second; its timer runs while there is one."""

    def __init__(self, http: HttpSettings) -> None:
        self._pause = min(LONGEST_PAUSE_S, http.header_timeout / 4, http.body_timeout / 4)
        self._open: set[Expiring] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Expiring) -> None:
        self._open.add(connection)
        if self._timer is None:
            self._wait()

    def discard(self, connection: Expiring) -> None:
        self._open.discard(connection)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._sweep)

    def _sweep(self) -> None:
        self._wait()
        now = monotonic_ns()
        for connection in tuple(self._open):
            connection.expire(now)
