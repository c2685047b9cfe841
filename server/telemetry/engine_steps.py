"""The engine's steps as series: where their time went, how full they were, how much of the wall time was work."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from time import monotonic_ns

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sampling.probe.records import PARTS, Step
from server.telemetry.buckets import BucketCounter

WINDOW_S = 10  # over which utilization is told
_NS = 10**9

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class EngineSteps(Collector):
    """Fed on the event loop, read at scrape."""

    def __init__(self) -> None:
        self._parts = [BucketCounter() for _ in PARTS]
        self._tokens = {"prefill": _Sizes(TOKENS), "decode": _Sizes(TOKENS)}
        self._occupancy = _Sizes(SHARES)
        self._missed = 0
        self._last: Step | None = None
        self._busy: deque[list[int]] = deque(maxlen=WINDOW_S + 1)  # [second, ns of work in it], newest last

    def add(self, step: Step) -> None:
        for counter, part in zip(self._parts, PARTS, strict=True):
            counter.observe(getattr(step, part))
        for phase, tokens in (("prefill", step.prefill_tokens), ("decode", step.decode_tokens)):
            if tokens:  # a step without any of a phase says nothing about that phase
                self._tokens[phase].observe(tokens)
        self._occupancy.observe(step.running / step.room)
        if self._last is not None:
            self._missed += step.number - self._last.number - 1
        self._last = step
        self._work(step)

    def busy_ratio(self, now: int) -> float:
        """Share of the last seconds, up to `WINDOW_S`, in which the model ran. `now` in monotonic ns."""
        first = -((WINDOW_S * _NS - now) // _NS)  # the first second that lies in the window as a whole
        busy = sum(busy for second, busy in self._busy if second >= first)
        return min(busy / (now - first * _NS), 1.0)

    def _work(self, step: Step) -> None:
        second = step.ended // _NS
        if not self._busy or self._busy[-1][0] != second:
            self._busy.append([second, 0])
        self._busy[-1][1] += step.busy

    def collect(self) -> Iterable[Metric]:
        seconds = HistogramMetricFamily(
            "streamgauge_engine_step_seconds",
            "Time of an engine step in each part; idle, rpc and overhead are the gap between its work.",
            labels=("part",),
        )
        for part, counter in zip(PARTS, self._parts, strict=True):
            seconds.add_metric((part,), buckets=list(counter.cumulative()), sum_value=counter.sum_seconds)
        yield seconds
        yield GaugeMetricFamily(
            "streamgauge_engine_busy_ratio",
            f"Effective utilization: share of the last {WINDOW_S} s in which the model ran (forward and sampling).",
            value=self.busy_ratio(monotonic_ns()),
        )
        tokens = HistogramMetricFamily(
            "streamgauge_batch_tokens", "Tokens of a step's batch, by the phase of their sequence.", labels=("phase",)
        )
        for phase, sizes in self._tokens.items():
            tokens.add_metric((phase,), buckets=sizes.cumulative(), sum_value=sizes.total)
        yield tokens
        yield HistogramMetricFamily(
            "streamgauge_batch_occupancy",
            "Sequences in a step's batch, as a share of max_num_seqs.",
            buckets=self._occupancy.cumulative(),
            sum_value=self._occupancy.total,
        )
        yield CounterMetricFamily(
            "streamgauge_engine_steps_missed", "Steps that were overwritten before they were read.", value=self._missed
        )
        yield GaugeMetricFamily(
            "streamgauge_engine_waiting",
            "Sequences that waited in the engine at its latest step.",
            value=self._last.waiting if self._last else 0,
        )
        yield GaugeMetricFamily(
            "streamgauge_engine_kv_usage_ratio",
            "Share of the KV cache in use at the latest step.",
            value=self._last.kv_usage if self._last else 0.0,
        )


class _Sizes:
    """A histogram of numbers that are no durations."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, size: float) -> None:
        self._counts[bisect_left(self._bounds, size)] += 1
        self.total += size

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus buckets: (upper bound, observations up to it), ending with +Inf."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return [(bound, float(count)) for bound, count in zip(bounds, accumulate(self._counts), strict=True)]
