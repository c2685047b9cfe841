from dataclasses import replace

import numpy as np
import pytest

from bench.regression.bootstrap import as_it_was
from bench.regression.measures import MEASURES, Arm
from bench.regression.pairs import Visit
from bench.run.result import Result
from bench.run.spec import Open, SpecError
from tests.support.results import SPEC, completed, failed, result

OPEN = replace(SPEC, load=Open("poisson", 2.0))


def figure(name: str, *results: Result, cpu_ns: int | None = None, drawn: list[int] | None = None) -> float:
    arm = Arm([Visit("A", 0, place, found, cpu_ns) for place, found in enumerate(results)])
    counts = as_it_was(len(arm.samples)) if drawn is None else np.array([drawn])
    [measure] = [measure for measure in MEASURES if measure.name == name]
    return float(measure.figures(arm, counts)[0])


def test_latencies_are_in_ms_and_of_completed_requests() -> None:
    found = result([completed(ttft_ms=100), completed(ttft_ms=300), failed()])
    assert figure("ttft_p50", found) == 200.0
    assert figure("tpot_p50", found) == 20.0
    assert figure("e2e_p50", found) == 240.0


def test_gaps_are_pooled_over_requests() -> None:
    found = result([completed(gaps_ms=[10, 10, 10]), completed(gaps_ms=[90])])
    assert figure("gap_p99", found) == pytest.approx(10 + 80 * 0.97)
    assert figure("gap_p99", found, drawn=[2, 0]) == 10.0


def test_rates_are_of_completed_requests_over_the_wall_time_of_all_visits() -> None:
    visits = [result([completed(), failed()], wall_s=2.0), result([completed(gaps_ms=[20] * 4)], wall_s=6.0)]
    assert figure("output_tokens_per_s", *visits) == 1.0
    assert figure("requests_per_s", *visits) == 0.25
    assert figure("error_rate", *visits) == pytest.approx(100 / 3)


def test_in_a_closed_loop_a_slow_request_brings_its_time_with_it() -> None:
    quick, slow = completed(ttft_ms=100, gaps_ms=[]), completed(ttft_ms=300, gaps_ms=[])
    closed, open_loop = (result([quick, slow], spec=spec, wall_s=4.0) for spec in (SPEC, OPEN))
    assert figure("requests_per_s", closed, drawn=[2, 0]) == 1.0
    assert figure("requests_per_s", closed, drawn=[0, 2]) == pytest.approx(1 / 3)
    assert figure("requests_per_s", open_loop, drawn=[0, 2]) == 0.5


def test_requests_that_never_got_anywhere_do_not_stop_the_clock() -> None:
    assert figure("requests_per_s", result([failed(), failed()], wall_s=1.0)) == 0.0


def test_cpu_is_counted_per_token_of_the_warm_up_too() -> None:
    found = result([completed(), completed()], spec=replace(SPEC, warmup=2))
    assert figure("cpu_us_per_token", found, cpu_ns=12_000) == 1.0


def test_cpu_is_drawn_by_visit_since_no_request_has_its_own() -> None:
    found = result([completed(gaps_ms=[20] * 9), completed(gaps_ms=[])])
    assert figure("cpu_us_per_token", found, cpu_ns=11_000, drawn=[2, 0]) == 1.0


def test_without_a_process_cpu_is_not_known() -> None:
    [cpu] = [measure for measure in MEASURES if measure.name == "cpu_us_per_token"]
    known, unknown = (Arm([Visit("A", 0, 0, result([completed()]), cpu_ns)]) for cpu_ns in (1, None))
    assert cpu.known(known) and not cpu.known(unknown)


@pytest.mark.parametrize(("name", "needed"), [("ttft_p50", 10), ("ttft_p99", 500)])
def test_a_quantile_needs_five_samples_beyond_it(name: str, needed: int) -> None:
    [measure] = [measure for measure in MEASURES if measure.name == name]
    short, enough = (Arm([Visit("A", 0, 0, result([completed()] * count))]) for count in (needed - 1, needed))
    assert measure.shortage(short) == f"{needed - 1} samples, {needed} needed"
    assert measure.shortage(enough) == ""


def test_gaps_of_a_few_requests_are_few_however_many_they_are() -> None:
    [gap] = [measure for measure in MEASURES if measure.name == "gap_p99"]
    assert gap.shortage(Arm([Visit("A", 0, 0, result([completed(gaps_ms=[20] * 600)]))])) == "1 requests, 10 needed"


def test_a_visit_that_measured_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="nothing was measured in a visit of A"):
        Arm([Visit("A", 0, 0, result([]))])
