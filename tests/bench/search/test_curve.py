import asyncio

import pytest

from bench.run.spec import SpecError
from bench.search import curve
from bench.search.capacity import Capacity, Search, find, wanted
from tests.bench.search.simulated import PREFILL_S, Queue, Server
from tests.support.results import SPEC


@pytest.fixture(scope="module")
def capacity() -> Capacity:
    search = Search(SPEC, wanted("ttft_p90<1s,tpot_p99<20s"), seconds=30.0, requests=60, rest_s=0.0)
    return asyncio.run(find(search, Server(Queue(8, 0.5)).load, lambda _: None))


def test_each_rate_that_has_a_whole_run_is_a_level(capacity: Capacity) -> None:
    levels = curve.levels(capacity)
    whole = {point.trial.rate for point in capacity.points if point.result is not None}
    assert [level.rate for level in levels] == sorted(whole)
    assert sum(level.runs for level in levels) == sum(trial.rate in whole for trial in capacity.trials)


def test_a_calm_level_completes_what_is_offered_and_all_of_it_is_good(capacity: Capacity) -> None:
    calm = curve.levels(capacity)[0]
    assert calm.met == calm.runs
    assert calm.requests_per_s == pytest.approx(calm.rate, rel=0.3)
    assert calm.goodput == pytest.approx(calm.requests_per_s)
    assert calm.output_tokens_per_s == pytest.approx(2 * calm.requests_per_s)
    assert calm.ttft_ms["p50"] == pytest.approx(1e3 * PREFILL_S)
    assert sum(calm.stages.values()) == pytest.approx(1.0)


def test_past_the_edge_waits_take_a_larger_share_and_less_is_good(capacity: Capacity) -> None:
    first, *_, last = curve.levels(capacity)
    assert last.stages["queue"] > first.stages["queue"]
    assert last.goodput < last.requests_per_s


def test_the_knee_is_one_of_the_rates(capacity: Capacity) -> None:
    levels = curve.levels(capacity)
    assert curve.bend(levels) in [level.rate for level in levels]
    assert curve.bend([]) is None


def test_runs_around_the_edge_used_more_or_less_than_their_tightest_limit(capacity: Capacity) -> None:
    strains = curve.strains(capacity)
    assert capacity.estimate is not None
    assert {strain.objective for strain in strains} == {"ttft_p90"}
    for strain in strains:
        assert strain.met == (strain.used < 1)
        assert strain.low is not None and strain.high is not None
        assert strain.low <= strain.used <= strain.high
        assert 0.75 < strain.rate / capacity.estimate.rate < 1.3
    assert len(strains) >= 6


def test_without_an_edge_none_lie_around_it() -> None:
    search = Search(SPEC, wanted("ttft_p90<10ms"), seconds=30.0, requests=60, rest_s=0.0)
    assert curve.strains(asyncio.run(find(search, Server(Queue(8, 0.5)).load, lambda _: None))) == []


def test_a_search_that_asks_for_nothing_readable_is_an_error() -> None:
    with pytest.raises(SpecError):
        wanted("fast")
