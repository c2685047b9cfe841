"""What can delay every stream at once: a busy event loop, a collecting garbage collector."""

import asyncio
import gc
from time import monotonic_ns
from typing import Any

from server.telemetry.metrics import Metrics

INTERVAL_S = 0.1


class LoopProbe:
    """Measures how late a timer fires, and each pause of the collector, from `start` to `close`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._collecting_since = 0

    def start(self) -> None:
        gc.callbacks.append(self._on_gc)
        self._task = asyncio.create_task(self._run(), name="loop-probe")

    async def close(self) -> None:
        if self._task is not None:
            gc.callbacks.remove(self._on_gc)
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)
            self._task = None

    async def _run(self) -> None:
        while True:
            due = monotonic_ns() + round(INTERVAL_S * 1e9)
            await asyncio.sleep(INTERVAL_S)
            self._metrics.loop_lag.observe(max(0, monotonic_ns() - due))

    def _on_gc(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting_since = monotonic_ns()
        else:
            self._metrics.gc_pause.observe(monotonic_ns() - self._collecting_since)
