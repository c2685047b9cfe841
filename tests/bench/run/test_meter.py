import time

from bench.run.meter import Meter, Progress, together
from bench.sample import NO_CHOICE, RequestSample, StreamEvent


def token(stamp: int) -> StreamEvent:
    return StreamEvent(stamp, 0, True, None)


def test_latencies_are_told_once_each_as_they_come() -> None:
    meter, sample = Meter(1), RequestSample(sent_ns=100)
    meter.begin(sample)
    sample.events += [StreamEvent(110, 0, False, None), token(150)]
    first = meter.progress(0)
    assert (first.ttft_ns, first.gaps_ns, first.tokens) == ([50], [], 1)
    sample.events += [token(160), StreamEvent(165, NO_CHOICE, False, None), token(190)]
    second = meter.progress(0)
    assert (second.ttft_ns, second.gaps_ns, second.tokens) == ([], [10, 30], 3)
    assert meter.progress(0).gaps_ns == []


def test_the_latencies_of_a_request_that_has_ended_are_told_too() -> None:
    meter, sample = Meter(1), RequestSample(sent_ns=100, output_tokens=8)
    watched = meter.begin(sample)
    sample.events += [token(150), token(170)]
    meter.end(watched)
    found = meter.progress(0)
    assert (found.ttft_ns, found.gaps_ns) == ([50], [20])
    assert (found.done, found.failed, found.in_flight, found.total, found.tokens) == (1, 0, 0, 1, 8)


def test_failures_are_done_and_their_tokens_do_not_count() -> None:
    meter = Meter(3)
    meter.end(meter.begin(RequestSample(error="http 503", output_tokens=4)))
    meter.begin(RequestSample())
    found = meter.progress(0)
    assert (found.done, found.failed, found.in_flight, found.tokens) == (1, 1, 1, 0)


def test_a_request_is_in_flight_once_it_is_due() -> None:
    meter, now = Meter(2), time.monotonic_ns()
    meter.begin(RequestSample(scheduled_ns=now + 60_000_000_000))
    assert meter.progress(0).in_flight == 0
    meter.begin(RequestSample(scheduled_ns=now))
    assert meter.progress(0).in_flight == 1


def test_before_its_origin_a_run_has_taken_no_time() -> None:
    assert Meter(1).progress(time.monotonic_ns() + 60_000_000_000).seconds == 0.0


def test_processes_add_up() -> None:
    parts = [Progress(1, 0, 2, 5, 10, 3.0), Progress(2, 1, 3, 5, 20, 3.1)]
    assert together(parts, 10, [7], [8]) == Progress(3, 1, 5, 10, 30, 3.1, [7], [8])
    assert together([], 10, [], []) == Progress(0, 0, 0, 10, 0, 0.0)
