from typing import Any

import pytest

from bench.run.result import Result
from bench.sample import RequestSample, StreamEvent

MS = 1_000_000


def answered(late_ms: float = 0.0, ttft_ms: float = 100.0, timings: dict[str, Any] | None = None) -> RequestSample:
    events = [StreamEvent(round(ttft_ms * MS), 0, True, None)]
    return RequestSample(sent_ns=round(late_ms * MS), scheduled_ns=0, events=events, timings=timings)


def faults(*samples: RequestSample, include_timings: bool = True, **facts: Any) -> list[str]:
    return Result({"include_timings": include_timings}, samples, 0, 1_000 * MS, facts).faults


@pytest.mark.parametrize(("late_ms", "ttft_ms", "valid"), [(4.9, 100, True), (5.1, 100, False), (0.9, 1, True)])
def test_a_generator_may_be_late_by_a_share_of_the_time_to_first_token(
    late_ms: float, ttft_ms: float, valid: bool
) -> None:
    found = faults(*[answered(late_ms, ttft_ms)] * 10)
    assert found == [] if valid else "the generator was late" in found[0]


def test_a_client_without_time_to_read_has_measured_itself() -> None:
    assert faults(answered(), client_busy=[0.5, 0.89]) == []
    (found,) = faults(answered(), client_busy=[0.5, 0.95])
    assert "95% of a core" in found


def test_a_run_that_is_over_at_once_does_not_tell_how_busy_its_client_is() -> None:
    assert Result({}, [answered()], 0, 5 * MS, {"client_busy": [0.95]}).faults == []


def test_stage_times_that_only_some_requests_have_are_a_fault() -> None:
    timed = answered(timings={"stages_ms": {}})
    assert faults(timed, timed) == []
    assert faults(answered(), answered()) == []  # another server, which has none to give
    assert faults(timed, answered(), include_timings=False) == []
    (found,) = faults(timed, answered())
    assert "1 of 2 completed requests" in found
