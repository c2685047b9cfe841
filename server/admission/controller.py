"""The concurrency limit under a latency objective, steered by its violations.

The rule is the weighted up-down method (Kaernbach, "Simple adaptive testing with the weighted up-down method",
Perception & Psychophysics 49, 1991; as stochastic approximation of a quantile: Robbins and Monro, 1951): each violation
lowers the limit by a step, each request that kept the objective raises it by a step smaller by the odds of the target,
here 1 : 99. It rests where one in a hundred violates: at the p99. No percentile has to be estimated first, which at a
few requests per second takes half a minute.

Steps are shares of the limit. It is never raised while it isn't what holds requests back: a limit that drifts upward on
a quiet night would meet the morning unprepared.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from server.config import SloSettings

TARGET = 0.01  # the objective is a p99
DOWN = 0.05
UP = DOWN * TARGET / (1 - TARGET)
FLOOR = 2
WINDOW = 1000  # latest samples that the published percentiles are of
LOG_EVERY_S = 10.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Signal:
    """One latency under an objective; None: not steered by it. Seconds."""

    objective: float | None
    violations: int = 0
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def p99(self) -> float | None:
        """Of the latest samples, linearly interpolated."""
        ordered = sorted(self.latest)
        if not ordered:
            return None
        place = 0.99 * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])


class SloController:
    """Moves `limit` between FLOOR and `ceiling`. `max_wait`: the seconds of the TTFT objective spent in our queue."""

    def __init__(self, slo: SloSettings, max_wait: float, ceiling: int, clock: Callable[[], float]) -> None:
        ttft = slo.ttft_p99_ms / 1e3 - max_wait if slo.ttft_p99_ms is not None else None
        self.ttft = Signal(ttft)
        self.tpot = Signal(slo.tpot_p99_ms / 1e3 if slo.tpot_p99_ms is not None else None)
        self.lowered = self.raised = 0
        self._ceiling = ceiling
        self._floor = min(FLOOR, ceiling)
        self._exact = float(ceiling)
        self._clock = clock
        self._logged_at = clock()

    @property
    def limit(self) -> int:
        return round(self._exact)

    def first_token(self, seconds: float, at_best: float, *, limiting: bool) -> None:
        """A request's time from submission to its first token; `at_best` the engine alone would have needed.

        A prompt too long for the objective on an idle engine says nothing about the limit.
        """
        if self.ttft.objective is None or at_best < self.ttft.objective:
            self._observe(self.ttft, seconds, limiting)

    def answered(self, tpot: float, *, limiting: bool) -> None:
        """A choice's time per output token, in seconds."""
        self._observe(self.tpot, tpot, limiting)

    def _observe(self, signal: Signal, seconds: float, limiting: bool) -> None:
        signal.latest.append(seconds)
        if signal.objective is None:
            return
        if seconds > signal.objective:
            signal.violations += 1
            self.lowered += 1
            self._exact = max(self._exact * (1 - DOWN), float(self._floor))
        elif limiting and self._exact < self._ceiling:
            self.raised += 1
            self._exact = min(self._exact * (1 + UP), float(self._ceiling))
        self._log_now_and_then()

    def _log_now_and_then(self) -> None:
        if self._exact == self._ceiling or self._clock() - self._logged_at < LOG_EVERY_S:
            return
        self._logged_at = self._clock()
        _log.info(
            "slo_controller",
            limit=self.limit,
            lowered=self.lowered,
            raised=self.raised,
            engine_ttft_p99_s=self.ttft.p99(),
            engine_ttft_samples=len(self.ttft.latest),
            tpot_p99_s=self.tpot.p99(),
            tpot_samples=len(self.tpot.latest),
        )
