import pytest

from bench.search import spent
from tests.support.results import completed, failed, result, timings


def test_stages_of_requests_add_up_and_what_lies_inside_others_does_not() -> None:
    told = timings((5.0, 6.0), 1.0, prefill=10.0, decode=20.0)
    total = spent.together([completed(timings=told), completed(timings=told), completed()])
    assert {stage: ms for stage, ms in total.items() if ms} == {"prefill": 20.0, "decode": 40.0, "unattributed": 2.0}


def test_the_mean_is_of_completed_requests_that_told() -> None:
    told = [completed(timings=timings(decode=10.0)), completed(timings=timings(decode=30.0))]
    assert spent.mean(result([*told, completed(), failed()]))["decode"] == 20.0
    assert spent.mean(result([completed()])) == {}


def test_shares_are_of_all_the_time() -> None:
    total = spent.together([completed(timings=timings(queue=30.0, prefill=10.0, decode=60.0))])
    assert spent.share(total, ["queue", "prefill"]) == pytest.approx(0.4)
    assert spent.share({}, ["queue"]) == 0.0


def test_stages_that_a_server_does_not_name_took_no_time() -> None:
    assert set(spent.stages_ms(completed(timings=timings(decode=1.0)))) == set(spent.ADDED)
