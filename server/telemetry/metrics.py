"""All of our own series. Counted in plain integers on the event loop, folded into Prometheus families at scrape."""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from server.ledger import Ledger, Meters
from server.stages import LEDGER_STAGES, TOKEN_STAGES, Stage
from server.telemetry.buckets import BucketCounter


class Metrics(Collector):
    """One server's counters, in a registry of its own."""

    def __init__(self) -> None:
        self.stages = [BucketCounter() for _ in Stage]
        self.token_stages = [BucketCounter() for _ in Stage]
        self.unattributed = BucketCounter()
        self.time_to_first_token = BucketCounter()
        self.time_per_output_token = BucketCounter()
        self.event_gap = BucketCounter()
        self.request = BucketCounter()
        self.loop_lag = BucketCounter()
        self.gc_pause = BucketCounter()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[str] = Counter(prompt=0, output=0)
        self.in_flight = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)

    @property
    def meters(self) -> Meters:
        """What streams observe per token."""
        return Meters(self.token_stages, self.event_gap)

    def finished(self, ledger: Ledger) -> None:
        """Count a request whose last byte has left."""
        self.requests[ledger.endpoint, ledger.outcome] += 1
        if ledger.output_tokens:  # else the engine may never have seen the prompt
            self.tokens["prompt"] += ledger.prompt_tokens
        self.tokens["output"] += ledger.output_tokens
        wall = ledger.ended_ns - ledger.clock.started
        self.request.observe(wall)
        for stage in LEDGER_STAGES:
            if spent := ledger.clock.ns[stage]:
                self.stages[stage].observe(spent)
        self.unattributed.observe(ledger.clock.unattributed(ledger.ended_ns))
        if ledger.first_event_ns:
            self.time_to_first_token.observe(ledger.first_event_ns - ledger.clock.started)
        for tpot in ledger.tpot_ns:
            self.time_per_output_token.observe(round(tpot))

    def collect(self) -> Iterable[Metric]:
        by_stage = {stage.label: self.stages[stage] for stage in LEDGER_STAGES}
        by_token = {stage.label: self.token_stages[stage] for stage in TOKEN_STAGES}
        yield _by_stage("streamgauge_stage_seconds", "Time of a request in each stage.", by_stage)
        yield _by_stage("streamgauge_token_stage_seconds", "Time of a token delta in each stage.", by_token)
        yield _plain("streamgauge_unattributed_seconds", "Time of a request that no stage claims.", self.unattributed)
        yield _plain(
            "streamgauge_time_to_first_token_seconds",
            "First byte of the request to its first event with generated data.",
            self.time_to_first_token,
        )
        yield _plain(
            "streamgauge_time_per_output_token_seconds",
            "(last - first generated event) / (output tokens - 1), per choice.",
            self.time_per_output_token,
        )
        yield _plain("streamgauge_event_gap_seconds", "Time between two events of a choice.", self.event_gap)
        yield _plain("streamgauge_request_seconds", "First byte in to last byte out.", self.request)
        yield _plain("streamgauge_event_loop_lag_seconds", "How late a timer fires.", self.loop_lag)
        yield _plain("streamgauge_gc_pause_seconds", "Pauses of the garbage collector.", self.gc_pause)
        requests = CounterMetricFamily(
            "streamgauge_requests", "Requests that have ended, by outcome.", labels=("endpoint", "outcome")
        )
        for (endpoint, outcome), count in self.requests.items():
            requests.add_metric((endpoint, outcome), count)
        yield requests
        tokens = CounterMetricFamily("streamgauge_tokens", "Tokens of requests that have ended.", labels=("kind",))
        for kind, count in self.tokens.items():
            tokens.add_metric((kind,), count)
        yield tokens
        yield GaugeMetricFamily("streamgauge_requests_in_flight", "Requests not ended yet.", value=self.in_flight)


def _plain(name: str, documentation: str, counter: BucketCounter) -> Metric:
    return HistogramMetricFamily(name, documentation, buckets=list(counter.cumulative()), sum_value=counter.sum_seconds)


def _by_stage(name: str, documentation: str, counters: Mapping[str, BucketCounter]) -> Metric:
    family = HistogramMetricFamily(name, documentation, labels=("stage",))
    for label, counter in counters.items():
        family.add_metric((label,), buckets=list(counter.cumulative()), sum_value=counter.sum_seconds)
    return family
