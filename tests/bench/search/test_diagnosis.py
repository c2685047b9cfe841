from collections.abc import Mapping, Sequence

import pytest

from bench.run.result import Result
from bench.sample import RequestSample
from bench.search import diagnosis
from bench.search.diagnosis import BUSY_RATIO, OCCUPANCY, Finding, diagnose, findings
from tests.support.results import SPEC, completed, refused, result, timings


def one(found: Sequence[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def waited(queue_ms: float, at_s: float = 0.0, **stages_ms: float) -> RequestSample:
    """For its place, then 50 ms for a prefill."""
    told = timings(queue=queue_ms, prefill=50.0, **{"decode": 100.0, **stages_ms})
    return completed(at_s, ttft_ms=queue_ms + 50.0, gaps_ms=[20.0] * 5, timings=told)


def with_series(**values: float) -> Result:
    names = {"busy": BUSY_RATIO, "filled": OCCUPANCY, "queued": "streamgauge_admission_queued"}
    names["waiting"] = "streamgauge_engine_waiting"
    series: Mapping[str, Sequence[tuple[float, float]]] = {
        names[name]: [(0.0, value - value / 2), (1.0, value + value / 2)] for name, value in values.items()
    }
    return result([completed()], series=series)


def test_a_run_with_nothing_remarkable_is_not_commented_on() -> None:
    assert diagnose(result([waited(10.0 + index) for index in range(20)])) == []
    assert diagnose(result([])) == []


def test_a_p99_of_five_times_the_median_is_queueing_and_its_stage_is_named() -> None:
    found = one(diagnose(result([waited(1.0) for _ in range(98)] + [waited(900.0), waited(950.0)])))
    assert found.stage == "queue"
    assert found.text.startswith("TTFT p99 is ")
    assert found.evidence["p99_ms"] >= 5 * found.evidence["p50_ms"]
    assert found.evidence["share_of_slowest"] > 0.9 > 0.1 > found.evidence["share_of_median"]


def test_just_below_five_times_is_not() -> None:
    assert diagnose(result([completed(ttft_ms=100) for _ in range(90)] + [completed(ttft_ms=490)] * 10)) == []


def test_tokens_that_stall_are_contention_after_the_first_token() -> None:
    told = timings(prefill=50.0, decode=40.0)
    slow = timings(prefill=50.0, decode=40.0, dispatch=4000.0)
    calm = [completed(gaps_ms=[20.0, 20.0], timings=told) for _ in range(98)]
    stalled = [completed(gaps_ms=[2000.0, 2000.0], timings=slow) for _ in range(2)]
    found = next(finding for finding in diagnose(result([*calm, *stalled])) if finding.text.startswith("TPOT"))
    assert found.stage == "dispatch"


def test_without_stage_times_queueing_is_seen_and_not_located() -> None:
    found = one(diagnose(result([completed(ttft_ms=10)] * 98 + [completed(ttft_ms=900)] * 2)))
    assert found.stage is None
    assert "90.0 times" in found.text


def test_a_busy_engine_with_work_that_waits_is_overloaded() -> None:
    found = one(diagnose(with_series(busy=0.95, waiting=3.0)))
    assert found.stage == "queue"
    assert found.text == "The engine executed 95% of the time, and 3.0 waited in queue: it is overloaded."


def test_the_longer_queue_is_the_one_that_is_named() -> None:
    assert one(diagnose(with_series(busy=0.95, waiting=3.0, queued=9.0))).stage == "admit"


@pytest.mark.parametrize("values", [{"busy": 0.95, "waiting": 0.5}, {"busy": 0.6, "waiting": 9.0}, {"busy": 0.95}])
def test_a_busy_engine_or_work_that_waits_is_not_overload_by_itself(values: dict[str, float]) -> None:
    assert diagnose(with_series(**values)) == []


def test_small_batches_while_work_waits_are_underfilled() -> None:
    found = one(diagnose(with_series(busy=0.6, filled=0.2, queued=5.0)))
    assert found.stage == "admit"
    assert found.evidence == {"occupancy": pytest.approx(0.2), "waiting": pytest.approx(5.0)}
    assert diagnose(with_series(busy=0.6, filled=0.8, queued=5.0)) == []
    assert diagnose(with_series(busy=0.6, filled=0.2)) == []


def test_more_than_three_tenths_after_the_model_are_flagged_with_the_worst_of_its_stages() -> None:
    heavy = timings(decode=60.0, dispatch=5.0, detokenize=25.0, send=10.0)
    found = one(diagnose(result([completed(timings=heavy)])))
    assert found.stage == "detokenize"
    assert found.text.startswith("40% of all time")
    assert diagnose(result([completed(timings=timings(decode=75.0, send=25.0))])) == []


def test_time_that_belongs_to_no_stage_is_flagged() -> None:
    found = one(diagnose(result([completed(timings=timings(unattributed_ms=10.0, decode=90.0))])))
    assert found.stage == "unattributed"
    assert found.evidence == {"share": pytest.approx(0.1)}


def test_a_late_generator_is_the_bottleneck_itself() -> None:
    found = one(diagnose(result([completed(late_ms=200.0) for _ in range(5)])))
    assert found.stage == diagnosis.CLIENT
    assert "the generator was late" in found.text


def test_refusals_are_said_to_be_the_servers_own_doing() -> None:
    found = one(diagnose(result([completed(), refused(), refused()])))
    assert found.stage == "admit"
    assert "refused 2 of 3" in found.text


def test_what_grew_most_from_a_calm_run_to_one_past_its_limits_breaks_first() -> None:
    calm, past = (result([waited(ms, decode=decode)]) for ms, decode in ((5.0, 100.0), (400.0, 120.0)))
    found = findings(calm, None, past)[0]
    assert found.stage == "queue"
    assert found.text == "queue breaks first: from 5.0 ms of a request to 400.0 ms on average."


def test_where_nothing_grew_nothing_breaks_first() -> None:
    same = result([waited(5.0)])
    assert findings(same, same, same) == []


def test_without_stage_times_it_is_said_which_latency_breaks_first() -> None:
    calm = result([completed(ttft_ms=100, gaps_ms=[20, 20])])
    first = one(findings(calm, None, result([completed(ttft_ms=900, gaps_ms=[30, 30])])))
    assert first.stage is None
    assert first.text.startswith("The wait for the first token breaks first (p99 is 9.0 times as long)")
    later = one(findings(calm, None, result([completed(ttft_ms=110, gaps_ms=[80, 80])])))
    assert later.text.startswith("The time per token breaks first (p99 is 4.0 times as long)")


def test_an_edge_at_which_work_still_piles_up_is_said_to_be_overstated() -> None:
    edge = result([completed(0.1 * index, ttft_ms=50.0 * (index + 1)) for index in range(200)], wall_s=30.0)
    found = findings(None, edge, None)
    assert [finding.stage for finding in found if "longer ones would show" in finding.text] == [diagnosis.CLIENT]


def test_requests_without_stage_times_among_others_make_a_run_invalid() -> None:
    found = one(diagnose(result([completed(timings=timings(decode=1.0)), completed()], spec=SPEC)))
    assert "1 of 2 completed requests have no stage times" in found.text
