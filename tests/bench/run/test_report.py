from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.run.objectives import parse
from bench.run.report import html, save
from bench.run.report_plots import SERIES, cdf, in_flight, over_time, plots, throughput
from bench.run.report_stages import breakdown, shares, stacked
from bench.run.result import Result
from bench.sample import RequestSample
from tests.bench.test_overload_report import Page
from tests.support.results import completed, failed, refused, result, timings

PANELS = [title.partition(", ")[0] for title in SERIES]
SOME_SERIES = {name: [(0.0, 1.0), (1.0, 2.0)] for labels in SERIES.values() for name in labels}


def staged(e2e_ms: float, *, sample_ms: float = 4.0) -> RequestSample:
    """`e2e_ms`, of which 10 are prefill, 5 are nobody's and the rest is decode."""
    found = timings((1.0, sample_ms - 1.0), unattributed_ms=5.0, prefill=10.0, decode=e2e_ms - 15.0, send=0.0)
    return completed(e2e_ms / 1e3, ttft_ms=10.0, gaps_ms=[e2e_ms - 10.0], timings=found)


def run(**more: Any) -> Result:
    return result([staged(100.0), staged(50.0), refused(0.2, "<b>busy</b>"), failed(0.3)], series=SOME_SERIES, **more)


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_the_page_fetches_nothing() -> None:
    page = Page(html(run(), None))
    assert page.addresses == []
    assert any("Plotly" in script for script in page.scripts)


def test_the_page_draws_every_plot() -> None:
    page = html(run(), parse("ttft_p99<1s"))
    drawn = "".join(script for script in Page(page).scripts if "Plotly.newPlot" in script)
    titles = ("latency distributions", "TTFT over time", "event gaps over time", "throughput over time")
    for title in (*titles, "requests in flight", "stages over percentile", *(f"server: {name}" for name in PANELS)):
        assert title in drawn
    for name in ("TTFT", "TPOT", "event gap", "E2E", "TTFT p99 objective", "prefill", "decode", "unattributed"):
        assert f'"name":"{name}"' in drawn


def test_the_page_says_whether_objectives_are_met() -> None:
    page = html(run(), parse("ttft_p99<1s,error_rate<1%"))
    assert "✓ met</td><td>ttft_p99 &lt; 1,000 ms: 10 ms" in page
    assert "✗ MISSED</td><td>error_rate &lt; 1%: 50%" in page


def test_the_page_has_settings_machine_and_what_was_not_completed() -> None:
    page = html(run(facts={"machine": {"cores": 2}, "versions": {"python": "3.12"}}), None)
    for text in ("load.concurrency", "machine.cores", "versions.python", "refused: http 503", "failed: cut"):
        assert f"<td>{text}</td>" in page


def test_text_from_servers_is_escaped() -> None:
    page = html(run(), None)
    assert "&lt;b&gt;busy&lt;/b&gt;" in page
    assert "<b>busy" not in page


def test_the_page_says_what_the_figures_are_a_sign_of() -> None:
    fast = [completed(ttft_ms=100.0, timings=timings(queue=10.0, prefill=90.0)) for _ in range(20)]
    slow = [completed(ttft_ms=900.0, timings=timings(queue=810.0, prefill=90.0)) for _ in range(2)]
    assert "<li>TTFT p99 is 9.0 times its p50, a sign of queueing" in html(result([*fast, *slow]), None)
    assert "What stands out" not in html(result(fast), None)


def test_a_run_of_which_all_requests_have_stage_times_is_not_marked() -> None:
    page = html(run(), None)
    assert "<p>Stage times of 2 of 2 completed requests (100 %).</p>" in page
    assert 'class="mark"' not in page


def test_a_run_of_which_some_have_no_stage_times_is_marked() -> None:
    page = html(result([staged(100.0), completed(), completed(), completed()]), None)
    assert '<p class="mark">Stage times of 1 of 4 completed requests (25 %)' in page
    assert '<p class="mark">Invalid: 3 of 4 completed requests have no stage times' in page


def test_another_server_has_no_stage_times_and_no_mark() -> None:
    page = html(result([completed(), completed()]), None)
    assert "No request has stage times" in page
    assert 'class="mark"' not in page
    assert "stages over percentile" not in page


@pytest.mark.parametrize("samples", [[], [failed()]])
def test_a_run_that_completed_nothing_has_a_page_that_says_so(samples: list[RequestSample]) -> None:
    page = html(result(samples), parse("ttft_p99<1s"))
    assert "Invalid: no request was completed" in page
    assert "ttft_p99 &lt; 1,000 ms: nothing measured" in page


def test_a_single_token_is_enough_for_a_page() -> None:
    assert "TTFT over time" in html(result([completed(gaps_ms=[])]), None)


def test_a_page_is_one_whole_file(tmp_path: Path) -> None:
    page = save(tmp_path, run(), None).read_text(encoding="utf-8")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")


def test_stages_are_stacked_from_the_fastest_request_to_the_slowest() -> None:
    found = breakdown(run())
    assert found is not None
    bars = traces(stacked(found))
    assert bars["prefill"].x == (25.0, 75.0)
    assert bars["prefill"].width == (50.0, 50.0)
    assert bars["decode"].y == (35.0, 85.0)
    assert bars["unattributed"].y == (5.0, 5.0)
    assert bars["E2E at the client"].y == (50.0, 100.0)


def test_sampling_is_a_line_and_no_part_of_the_sum() -> None:
    found = breakdown(run())
    assert found is not None
    figure = stacked(found)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [sum(heights) for heights in zip(*(bar.y for bar in bars), strict=True)] == [50.0, 100.0]
    line = traces(figure)["sample (inside prefill and decode)"]
    assert (line.type, line.y) == ("scatter", (4.0, 4.0))


def test_a_stage_that_took_no_time_is_not_drawn() -> None:
    found = breakdown(run())
    assert found is not None
    assert "send" not in traces(stacked(found))


def test_many_requests_are_averaged_by_hundredths() -> None:
    found = breakdown(result([staged(100.0 + number) for number in range(250)]))
    assert found is not None
    line = traces(stacked(found))["E2E at the client"]
    assert len(line.y) == 100
    assert list(line.y) == sorted(line.y)
    assert sum(traces(stacked(found))["prefill"].width) == pytest.approx(100, rel=1e-3)


def test_shares_of_stages_add_up() -> None:
    found = breakdown(run())
    assert found is not None
    rows = {name: (mean, share) for name, mean, _, share in shares(found)}
    assert rows["decode"] == (pytest.approx(60.0), pytest.approx(80.0))
    assert sum(share for _, share in rows.values()) == pytest.approx(100.0)
    assert "sample" not in rows


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=200), st.integers(2, 50))
def test_a_distribution_is_in_order_and_no_larger_than_asked(values: list[float], points: int) -> None:
    x, percents = cdf(np.array(values), points)
    assert len(x) == len(percents) <= points
    assert np.all(np.diff(x) >= 0)
    assert np.all(np.diff(percents) > 0)
    assert percents[0] > 0 and percents[-1] < 100
    assert x[-1] == max(values)


def test_a_distribution_thinned_out_keeps_the_tail_and_the_median() -> None:
    x, percents = cdf(np.arange(100_000.0), 100)
    assert np.interp(50, percents, x) == pytest.approx(50_000, rel=0.05)
    assert x[-1] == 99_999
    assert np.sum(percents > 99.9) > 20


def test_values_over_time_have_median_p99_and_largest_of_each_interval() -> None:
    at = np.array([0.1, 0.2, 0.3, 9.9])
    lines = traces(over_time("x", at, np.array([10.0, 20.0, 30.0, 5.0]), points=True))
    assert lines["a request"].y == (10.0, 20.0, 30.0, 5.0)
    assert lines["p50"].y == (20.0, 5.0)
    assert lines["largest"].y == (30.0, 5.0)
    first, last = lines["p50"].x
    assert 0.1 <= first <= 1.0 and 9.0 <= last <= 9.9


def test_ten_thousand_requests_are_a_thousand_points() -> None:
    at = np.arange(10_000.0)
    lines = traces(over_time("x", at, at, points=True))
    assert len(lines["a request"].x) == 1000
    assert len(lines["p99"].x) == 100


def test_tokens_count_where_their_events_were_read() -> None:
    samples = [completed(0.0, ttft_ms=1000.0, gaps_ms=[9000.0], tokens=10), refused(5.0)]
    lines = traces(throughput(result(samples)))
    width = lines["output tokens/s"].x[1] - lines["output tokens/s"].x[0]
    tokens = [rate * width for rate in lines["output tokens/s"].y]
    assert (tokens[0], tokens[-1], sum(tokens)) == pytest.approx((5.0, 5.0, 10.0), rel=1e-3)
    assert sum(lines["completed"].y) * width == pytest.approx(1.0, rel=1e-3)
    assert sum(lines["refused"].y) * width == pytest.approx(1.0, rel=1e-3)
    assert "failed" not in lines


def test_a_request_is_in_flight_from_its_start_to_its_end() -> None:
    samples = [completed(0.0, ttft_ms=4000.0, gaps_ms=[]), completed(2.0, ttft_ms=8000.0, gaps_ms=[])]
    (line,) = in_flight(result(samples)).data
    assert [int(np.interp(at, line.x, line.y)) for at in (1.0, 3.0, 7.0)] == [1, 2, 1]


def test_a_run_kept_and_read_again_is_drawn_alike(tmp_path: Path) -> None:
    again = Result.load(run().save(tmp_path))
    ours, theirs = (list(plots(each, None)) for each in (run(), again))
    assert [figure.to_dict() for figure in ours] == [figure.to_dict() for figure in theirs]
