import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.run.meter import Progress
from bench.run.result import Result
from bench.run.spec import Closed, Open, Spec, SpecError
from bench.search.bracket import may_stop_early
from bench.search.capacity import IMPLIED, LEAST_REQUESTS, Capacity, Search, find, wanted
from tests.bench.search.simulated import Queue, Server
from tests.support.results import SPEC, failed, result

QUEUE = Queue(8, 0.5)


def search(slo: str = "ttft_p90<1s", **more: float) -> Search:
    return replace(Search(SPEC, wanted(slo), seconds=30.0, requests=60, rest_s=0.0), **more)


def found(server: Server, asked: Search) -> Capacity:
    return asyncio.run(find(asked, server.load, lambda _: None))


def test_the_answer_is_an_edge_between_what_met_and_what_missed() -> None:
    capacity = found(Server(QUEUE), search())
    low, high = capacity.bracket
    assert low is not None and high is not None and capacity.estimate is not None
    assert 4 < low < high < 12
    assert capacity.estimate.low < high and capacity.estimate.high > low
    assert capacity.calm and capacity.edge and capacity.past
    assert capacity.calm.spec["load"]["rate"] <= capacity.edge.spec["load"]["rate"] <= low
    assert capacity.past.spec["load"]["rate"] >= high


def test_a_closed_loop_comes_first_and_gives_the_scale() -> None:
    server = Server(QUEUE)
    capacity = found(server, search())
    assert isinstance(server.asked[0].load, Closed)
    assert capacity.plan.start == pytest.approx(4.0)  # half of what eight places do at a second each
    assert capacity.trials[0].rate == capacity.plan.start


def test_points_are_poisson_of_seeds_of_their_own_and_long_enough() -> None:
    server = Server(QUEUE)
    found(server, search(requests=150))
    points = server.asked[1:]
    for spec in points:
        assert isinstance(spec.load, Open) and spec.load.shape == "poisson"
        assert spec.requests >= max(150, 30 * spec.load.rate)
        assert spec.warmup >= spec.requests / 5
    assert len({spec.seed for spec in server.asked}) == len(server.asked)


def test_a_point_may_be_bounded_in_time_where_requests_come_seldom() -> None:
    asked = search(longest=60.0)
    assert asked.at(0.5, 0).requests == 30
    assert asked.at(0.01, 0).requests == LEAST_REQUESTS
    assert asked.at(4.0, 0).requests == 120


def test_no_rate_is_tried_below_the_lowest_share_of_the_first() -> None:
    server = Server(QUEUE)
    capacity = found(server, search("ttft_p90<0.001s", lowest_share=1.0))
    assert {trial.rate for trial in capacity.trials} == {capacity.plan.start}
    assert not any(trial.met for trial in capacity.trials)


def test_a_search_repeats_with_its_seed() -> None:
    assert found(Server(QUEUE), search()).trials == found(Server(QUEUE), search()).trials


def test_a_hopeless_rate_is_cut_short_and_those_around_the_edge_are_not() -> None:
    capacity = found(Server(QUEUE), search(low=16.0, high=64.0))
    stopped = [point for point in capacity.points if point.trial.stopped]
    assert stopped and all(point.result is None and not point.trial.met and point.in_flight for point in stopped)

    trials = found(Server(QUEUE), search()).trials
    near = [trial for index, trial in enumerate(trials) if not may_stop_early(trials[:index])]
    assert any(trial.stopped for trial in trials)
    assert not any(trial.stopped for trial in near) and not all(trial.met for trial in near)


def test_limits_that_are_never_met_leave_no_estimate() -> None:
    capacity = found(Server(QUEUE), search("ttft_p90<10ms"))
    assert capacity.estimate is None
    assert capacity.bracket.low is None and capacity.edge is None and capacity.calm is None
    assert {trial.met for trial in capacity.trials} == {False}


def test_limits_that_are_met_up_to_the_highest_rate_leave_none_either() -> None:
    capacity = found(Server(QUEUE), search(high=5.0))
    assert capacity.estimate is None
    assert capacity.bracket == (5.0, None)
    assert capacity.past is None and capacity.edge is not None


def test_a_server_that_turns_callers_away_has_no_capacity_though_the_others_are_well_served() -> None:
    capacity = found(Server(QUEUE, fails=10), search("ttft_p90<10s"))
    assert not any(trial.met for trial in capacity.trials)


def test_what_is_found_is_handed_over_after_each_point() -> None:
    kept: list[int] = []
    capacity = asyncio.run(find(search(), Server(QUEUE).load, lambda so_far: kept.append(len(so_far.points))))
    assert kept == list(range(1, len(capacity.points) + 1))


def test_a_server_that_completes_nothing_is_an_error() -> None:
    async def load(spec: Spec, on_progress: Callable[[Progress], None]) -> Result:
        return result([failed() for _ in range(spec.requests)], spec=spec)

    with pytest.raises(SpecError, match="completed none of 64"):
        asyncio.run(find(search(), load, lambda _: None))


def test_bounds_that_leave_no_rate_are_an_error() -> None:
    with pytest.raises(SpecError, match="no rate lies between 5 and 2"):
        found(Server(QUEUE), search(low=5.0, high=2.0))


def test_a_floor_is_no_limit_to_search_for() -> None:
    with pytest.raises(SpecError, match="goodput, output_tokens_per_s"):
        wanted("ttft_p99<1s,goodput>2,output_tokens_per_s>9")


def test_a_limit_on_errors_goes_without_saying_unless_one_is_given() -> None:
    assert wanted("ttft_p99<1s").text == f"ttft_p99<1s,{IMPLIED}"
    assert wanted("ttft_p99<1s,refused_rate<50%").text == "ttft_p99<1s,refused_rate<50%"
