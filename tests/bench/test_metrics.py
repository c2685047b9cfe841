import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.metrics import Distribution, percentile, summarize
from bench.sample import RequestSample, StreamEvent

MS = 1_000_000


@pytest.mark.parametrize(
    ("q", "expected"), [(0, 10.0), (25, 17.5), (50, 25.0), (90, 37.0), (99, 39.7), (99.9, 39.97), (100, 40.0)]
)
def test_percentiles_lie_on_the_line_between_their_neighbours(q: float, expected: float) -> None:
    assert percentile([10, 20, 30, 40], q) == pytest.approx(expected)


def test_the_percentiles_of_one_sample_are_that_sample() -> None:
    assert {percentile([7.0], q) for q in (0, 50, 99.9, 100)} == {7.0}


@given(st.lists(st.floats(0, 1e9), min_size=1).map(sorted), st.floats(0, 100), st.floats(0, 100))
def test_percentiles_grow_with_q_and_stay_within_the_samples(ordered: list[float], one: float, two: float) -> None:
    low, high = (percentile(ordered, q) for q in sorted((one, two)))
    slack = 1e-9 * ordered[-1]
    assert ordered[0] - slack <= low <= high + slack
    assert high <= ordered[-1] + slack


def test_no_samples_have_no_percentile() -> None:
    with pytest.raises(ValueError):
        percentile([], 50)
    assert Distribution.of_ns([]) is None


@pytest.mark.parametrize("q", [-1, 101, float("nan")])
def test_a_percentile_outside_0_to_100_is_refused(q: float) -> None:
    with pytest.raises(ValueError):
        percentile([1.0], q)


def test_a_distribution_is_in_milliseconds_whatever_the_order() -> None:
    found = Distribution.of_ns([3 * MS, 1 * MS, 2 * MS])
    assert found is not None
    assert (found.count, found.mean, found.min, found.max) == (3, 2.0, 1.0, 3.0)
    assert found.percentiles["p50"] == 2.0
    assert list(found.percentiles) == ["p50", "p90", "p95", "p99", "p99.9"]


def stream(*stamps_ms: int, tokens: int, error: str | None = None) -> RequestSample:
    events = [StreamEvent(stamp * MS, 0, True, None) for stamp in stamps_ms]
    return RequestSample(sent_ns=0, done_ns=stamps_ms[-1] * MS, output_tokens=tokens, events=events, error=error)


def test_a_summary_by_hand() -> None:
    samples = [
        stream(10, 20, 40, tokens=4),
        stream(30, 40, 60, tokens=6),
        stream(1, 2, tokens=100, error="cut"),
        RequestSample(error="http 503"),
        RequestSample(error="http 503"),
    ]
    found = summarize(samples, wall_ns=2_000 * MS)
    assert (found.requests, found.completed) == (5, 2)
    assert found.failures == {"cut": 1, "http 503": 2}
    assert (found.output_tokens, found.output_tokens_per_s, found.requests_per_s) == (10, 5.0, 1.0)
    assert found.tokens_per_event == pytest.approx(10 / 6)
    assert found.ttft_ms is not None and found.ttft_ms.percentiles["p50"] == 20.0
    assert found.tpot_ms is not None and (found.tpot_ms.min, found.tpot_ms.max) == (6.0, 10.0)
    assert found.event_gap_ms is not None and (found.event_gap_ms.count, found.event_gap_ms.mean) == (4, 15.0)
    assert found.e2e_ms is not None and found.e2e_ms.max == 60.0
    assert found.lateness_ms is None


def test_a_run_in_which_everything_failed_has_a_summary_too() -> None:
    found = summarize([RequestSample(error="connect")], wall_ns=0)
    assert (found.completed, found.output_tokens_per_s, found.ttft_ms, found.tokens_per_event) == (0, 0.0, None, None)
