"""vLLM's own series (`vllm:*`), kept a moment after the steps that they count."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import structlog
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.metrics.stats import IterationStats

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

# No token waits for a scrape, and several steps' books at once cost less than each by itself, with cold caches.
DELAY_S = 0.1
MOST_STEPS = 64

_log = structlog.get_logger(__name__)


class SeriesKeeper:
    """Every step is recorded as AsyncLLM's output task would, in order, at most DELAY_S later."""

    def __init__(self, llm: "AsyncLLM") -> None:
        self._llm = llm
        self._steps: list[tuple[EngineCoreOutputs, IterationStats | None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, outputs: EngineCoreOutputs, stats: IterationStats | None) -> None:
        self._steps.append((outputs, stats))
        if len(self._steps) >= MOST_STEPS:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_S, self.flush)

    def flush(self) -> None:
        """Record what waits, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        steps, self._steps = self._steps, []
        try:
            self._record(steps)
        except Exception:  # series are no reason to end a stream
            _log.exception("series_failed")

    def _record(self, steps: Iterable[tuple[EngineCoreOutputs, IterationStats | None]]) -> None:
        llm = self._llm
        for outputs, stats in steps:
            llm.output_processor.update_scheduler_stats(outputs.scheduler_stats)
            if llm.logger_manager is not None:
                llm.logger_manager.record(
                    engine_idx=outputs.engine_index,
                    scheduler_stats=outputs.scheduler_stats,
                    iteration_stats=stats,
                    mm_cache_stats=llm.renderer.stat_mm_cache(),
                )
