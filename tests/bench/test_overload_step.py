from bench.overload_step import IN_USE, LIMIT, QUEUED, Reading, Step, admission_series
from tests.bench.outcomes import S, completed, point

METRICS = """# HELP streamgauge_admission_limit Sequences that may be in the engine at once.
# TYPE streamgauge_admission_limit gauge
streamgauge_admission_limit 12.0
streamgauge_admission_in_use 7.0
streamgauge_admission_refused_total{reason="wait"} 3.0
streamgauge_admission_refused_total{reason="full queue"} 4.0
streamgauge_slo_violations_total{signal="tpot"} 1.0
streamgauge_requests_in_flight 9.0
"""


def test_our_admissions_series_are_read_and_summed_over_their_labels() -> None:
    assert admission_series(METRICS) == {
        LIMIT: 12.0,
        IN_USE: 7.0,
        "streamgauge_admission_refused_total": 7.0,
        "streamgauge_slo_violations_total": 1.0,
    }


def test_a_line_has_the_seconds_since_the_start_and_skips_what_was_not_there() -> None:
    readings = [Reading(6 * S, {LIMIT: 8.0}), Reading(7 * S, {}), Reading(8 * S, {LIMIT: 4.0})]
    step = Step(5 * S, 10.0, [1.0], point("ours", 2.0, [completed()]), readings)
    assert step.line(LIMIT) == ([1.0, 3.0], [8.0, 4.0])
    assert step.line(QUEUED) == ([], [])
