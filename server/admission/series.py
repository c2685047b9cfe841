"""Admission's state and decisions as metrics, read at scrape."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from server.admission.admission import Admission
from server.admission.controller import Signal, SloController


class AdmissionSeries(Collector):
    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def collect(self) -> Iterable[Metric]:
        admission = self._admission
        slots, forecast = admission.slots, admission.forecast
        yield _gauge("limit", "Sequences that may be in the engine at once.", slots.limit)
        yield _gauge("in_use", "Sequences that are.", slots.in_use)
        yield _gauge("queued", "Requests that wait for a place.", len(admission.queue))
        yield _gauge(
            "prefill_tokens_per_second", "Prompt tokens computed per second of prefilling.", forecast.prefill_rate
        )
        yield _gauge("hold_seconds", "How long a sequence keeps its place, lately.", forecast.hold_s)
        refused = CounterMetricFamily(
            "streamgauge_admission_refused", "Requests turned away, by reason.", labels=("reason",)
        )
        for reason, count in admission.refusals.items():
            refused.add_metric((reason,), count)
        yield refused
        if admission.controller is not None:
            yield from _controller(admission.controller)


def _controller(controller: SloController) -> Iterable[Metric]:
    moves = CounterMetricFamily("streamgauge_slo_moves", "Steps of the limit.", labels=("direction",))
    moves.add_metric(("down",), controller.lowered)
    moves.add_metric(("up",), controller.raised)
    yield moves
    signals = {"engine_ttft": controller.ttft, "tpot": controller.tpot}
    violations = CounterMetricFamily("streamgauge_slo_violations", "Samples over the objective.", labels=("signal",))
    for name, signal in signals.items():
        violations.add_metric((name,), signal.violations)
    yield violations
    yield from _percentiles(signals)


def _percentiles(signals: dict[str, Signal]) -> Iterable[Metric]:
    p99 = GaugeMetricFamily("streamgauge_slo_p99_seconds", "Of the latest samples.", labels=("signal",))
    samples = GaugeMetricFamily("streamgauge_slo_p99_samples", "How many the p99 is of.", labels=("signal",))
    for name, signal in signals.items():
        samples.add_metric((name,), len(signal.latest))
        if (value := signal.p99()) is not None:
            p99.add_metric((name,), value)
    yield p99
    yield samples


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"streamgauge_admission_{name}", documentation, value=value)
