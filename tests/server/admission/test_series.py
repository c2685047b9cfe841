"""Admission's state and its controller's as a scrape shows them."""

from prometheus_client import CollectorRegistry

from server.admission.admission import Admission
from server.admission.series import AdmissionSeries
from server.config import SloSettings
from server.errors import Overloaded
from tests.server.admission.tickets import PLENTY, give_back, opened, request_of


def registry_of(admission: Admission) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(AdmissionSeries(admission))
    return registry


async def test_what_runs_waits_and_was_refused_is_counted() -> None:
    admission = opened(2, max_queue_size=1)
    value = registry_of(admission).get_sample_value
    tickets = [admission.apply(request_of(n=2), PLENTY) for _ in range(2)]
    for _ in range(3):
        try:
            admission.apply(request_of(), PLENTY)
        except Overloaded:
            continue
        raise AssertionError
    admission.forecast.prefilled(500, 0.5)
    admission.forecast.held(1.5)
    names = ("limit", "in_use", "queued", "prefill_tokens_per_second", "hold_seconds")
    assert [value(f"streamgauge_admission_{name}") for name in names] == [2, 2, 1, 1000, 1.5]
    assert value("streamgauge_admission_refused_total", {"reason": "queue_full"}) == 3
    give_back(*tickets)
    assert [value(f"streamgauge_admission_{name}") for name in ("in_use", "queued")] == [0, 0]


async def test_without_an_objective_there_is_no_controller_to_show() -> None:
    assert registry_of(opened(2)).get_sample_value("streamgauge_slo_moves_total", {"direction": "down"}) is None


async def test_the_controllers_moves_and_each_p99_with_its_sample_count_are_shown() -> None:
    admission = opened(40, slo=SloSettings(tpot_p99_ms=100))
    value = registry_of(admission).get_sample_value
    signals = ({"signal": "tpot"}, {"signal": "engine_ttft"})
    assert [value("streamgauge_slo_p99_seconds", signal) for signal in signals] == [None, None]
    assert [value("streamgauge_slo_p99_samples", signal) for signal in signals] == [0, 0]
    for _ in range(3):
        admission.took_per_token(0.2)
    assert value("streamgauge_admission_limit") == admission.slots.limit < 40
    assert value("streamgauge_slo_moves_total", {"direction": "down"}) == 3
    assert value("streamgauge_slo_moves_total", {"direction": "up"}) == 0
    assert [value("streamgauge_slo_violations_total", signal) for signal in signals] == [3, 0]
    assert value("streamgauge_slo_p99_seconds", signals[0]) == 0.2
    assert [value("streamgauge_slo_p99_samples", signal) for signal in signals] == [3, 0]
