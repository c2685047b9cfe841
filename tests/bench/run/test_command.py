from bench.run.command import exit_code
from bench.run.objectives import parse
from tests.support.results import completed, failed, result


def test_a_run_that_meets_its_objectives_is_0_and_one_that_misses_any_is_1() -> None:
    run = result([completed()])
    assert exit_code(run, []) == 0
    assert exit_code(run, parse("ttft_p99<1s").judge(run)) == 0
    assert exit_code(run, parse("ttft_p99<1s,tpot_p99<1ms").judge(run)) == 1


def test_figures_that_are_not_the_servers_alone_are_1() -> None:
    assert exit_code(result([completed(1, late_ms=80)]), []) == 1


def test_a_run_that_completed_nothing_is_1() -> None:
    assert exit_code(result([failed()]), []) == 1
