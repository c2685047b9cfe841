import pytest

from bench.run.objectives import parse
from bench.run.spec import SpecError
from tests.support.results import completed, failed, refused, result


@pytest.mark.parametrize(
    ("text", "limit", "unit"),
    [
        ("ttft_p99<1s", 1000.0, "ms"),
        ("tpot_mean<80.5ms", 80.5, "ms"),
        ("gap_p99.9<300ms", 300.0, "ms"),
        ("e2e_p50<2s", 2000.0, "ms"),
        ("error_rate<0.1%", 0.1, "%"),
        ("refused_rate<5%", 5.0, "%"),
        ("output_tokens_per_s>100", 100.0, "tokens/s"),
        ("goodput>2.5", 2.5, "requests/s"),
    ],
)
def test_an_objective_reads_as_its_name_a_limit_and_a_unit(text: str, limit: float, unit: str) -> None:
    (verdict,) = parse(text).judge(result([completed()]))
    assert verdict.name == text.partition("<")[0].partition(">")[0]
    assert (verdict.limit, verdict.unit) == (limit, unit)


def test_blanks_do_not_matter_and_the_order_is_kept() -> None:
    verdicts = parse(" tpot_p99 < 200 ms ,error_rate<1%, ttft_p99<1s").judge(result([completed()]))
    assert [verdict.name for verdict in verdicts] == ["tpot_p99", "error_rate", "ttft_p99"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ttft_p99<1s,",
        "ttft<1s",
        "itl_p99<1s",
        "ttft_p98<1s",
        "ttft_p999<1s",
        "ttft_p99<1",
        "ttft_p99<1m",
        "ttft_p99>1s",
        "ttft_p99<-1s",
        "ttft_p99<1e3ms",
        "error_rate<0.1",
        "output_tokens_per_s<100",
        "goodput>95%",
    ],
)
def test_what_is_no_objective_is_refused_with_examples(text: str) -> None:
    with pytest.raises(SpecError, match=r"not an objective: .*; they read ttft_p99<1s"):
        parse(text)


@pytest.mark.parametrize("text", ["ttft_p99<0ms", "error_rate<0.0%"])
def test_a_limit_that_nothing_is_below_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="nothing is below zero"):
        parse(text)


def test_a_quantile_is_of_raw_samples_and_names_what_it_found() -> None:
    run = result([completed(ttft_ms=ttft) for ttft in (100, 200, 300, 400)])
    met, missed = parse("ttft_p50<251ms,ttft_p50<249ms").judge(run)
    assert (met.found, met.met, missed.met) == (pytest.approx(250.0), True, False)
    assert str(missed) == "ttft_p50 < 249 ms: 250 ms"


def test_gaps_are_pooled_over_all_streams() -> None:
    run = result([completed(gaps_ms=[10.0] * 7), completed(gaps_ms=[90.0])])
    assert parse("gap_mean<50ms").judge(run)[0].found == pytest.approx(20.0)


def test_a_mean_is_over_requests_for_time_per_token() -> None:
    run = result([completed(gaps_ms=[10.0]), completed(gaps_ms=[30.0, 30.0, 30.0])])
    assert parse("tpot_mean<50ms").judge(run)[0].found == pytest.approx(20.0)


def test_latencies_are_of_completed_requests_only() -> None:
    late = completed(ttft_ms=5000)
    late.error = "cut"
    assert parse("ttft_p99<1s").judge(result([completed(), late]))[0].met


def test_errors_count_refusals_and_failures_and_refusals_count_alone() -> None:
    run = result([completed(), completed(), refused(), failed()])
    errors, refusals = parse("error_rate<50%,refused_rate<25.1%").judge(run)
    assert (errors.found, errors.met) == (50.0, False)
    assert (refusals.found, refusals.met) == (25.0, True)


def test_single_tokens_pass_an_objective_on_time_per_token() -> None:
    (verdict,) = parse("tpot_p99<1ms").judge(result([completed(gaps_ms=[])]))
    assert (verdict.found, verdict.met) == (None, True)
    assert "nothing measured" in str(verdict)


@pytest.mark.parametrize("text", ["ttft_p99<1s", "tpot_p99<1s", "e2e_p50<1s", "error_rate<99%"])
def test_a_run_that_completed_nothing_meets_nothing(text: str) -> None:
    assert not parse(text).judge(result([failed()]))[0].met
    assert not parse(text).judge(result([]))[0].met


def test_throughput_is_of_completed_requests_over_wall_time() -> None:
    run = result([completed(tokens=600), failed()], wall_s=10)
    (above, below) = parse("output_tokens_per_s>59,output_tokens_per_s>60").judge(run)
    assert (above.found, above.met, below.met) == (60.0, True, False)
    assert str(above) == "output_tokens_per_s > 59 tokens/s: 60 tokens/s"


def test_goodput_counts_requests_that_are_within_every_latency_objective() -> None:
    samples = [
        completed(),
        completed(ttft_ms=900),
        completed(gaps_ms=[500.0, 500.0]),
        completed(gaps_ms=[]),
        refused(),
        failed(),
    ]
    wanted = parse("ttft_p99<800ms,tpot_p99<100ms,goodput>0.1")
    assert [wanted.met_by(sample) for sample in samples] == [True, False, False, True, False, False]
    assert wanted.judge(result(samples, wall_s=10))[-1].found == pytest.approx(0.2)


def test_one_request_is_held_to_the_loosest_limit_of_a_measure() -> None:
    wanted = parse("ttft_p99<1s,ttft_p50<200ms")
    assert wanted.met_by(completed(ttft_ms=500))
    assert not wanted.met_by(completed(ttft_ms=1001))


def test_one_request_is_held_to_the_quantile_of_its_own_gaps() -> None:
    stalled = completed(gaps_ms=[10.0] * 9 + [400.0])
    assert parse("gap_p50<50ms").met_by(stalled)
    assert not parse("gap_p99<50ms").met_by(stalled)


def test_a_completed_request_without_any_token_is_not_good() -> None:
    empty = completed()
    empty.events = []
    assert not parse("ttft_p99<1s").met_by(empty)
    assert parse("error_rate<1%").met_by(empty)
