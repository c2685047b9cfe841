import os
from dataclasses import replace

import pytest

from bench.regression.pairs import Side, Visit, again, in_turn, visiting_order
from bench.run.result import Result
from bench.run.spec import Spec, SpecError
from tests.support.results import SPEC, completed, result

A, B = Side("A", replace(SPEC, url="http://a")), Side("B", replace(SPEC, url="http://b"))


class Runs:
    """Takes a load and says that one request was completed."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []

    async def __call__(self, spec: Spec) -> Result:
        self.specs.append(spec)
        return result([completed()], spec=spec)


def test_sides_are_visited_there_and_back_in_every_round() -> None:
    assert [(turn, side.name) for turn, _, side in visiting_order([A, B], 2)] == [
        *((0, name) for name in "ABBA"),
        *((1, name) for name in "ABBA"),
    ]


async def test_both_get_the_same_loads_and_neither_gets_one_twice() -> None:
    runs = Runs()
    visits = await in_turn([A, B], 2, runs)
    seeds = {name: [spec.seed for spec in runs.specs if spec.url == f"http://{name}"] for name in "ab"}
    assert seeds["a"] == seeds["b"] == [0, 1, 2, 3]
    assert [(visit.arm, visit.round, visit.position) for visit in visits[:5]] == [
        ("A", 0, 0),
        ("B", 0, 1),
        ("B", 0, 2),
        ("A", 0, 3),
        ("A", 1, 0),
    ]


async def test_each_visit_is_told_of_when_it_is_over() -> None:
    told: list[Visit] = []
    assert await in_turn([A, B], 1, Runs(), told.append) == told


async def test_one_server_by_itself_gets_other_prompts_each_time() -> None:
    runs = Runs()
    visits = await again(A, 3, runs)
    assert [spec.seed for spec in runs.specs] == [0, 1, 2]
    assert {visit.round for visit in visits} == {0}


async def test_cpu_is_that_of_the_servers_process_during_the_visit() -> None:
    async def busy(spec: Spec) -> Result:
        sum(range(100_000))
        return result([completed()], spec=spec)

    [visit] = await again(replace(A, pid=os.getpid()), 1, busy)
    assert visit.cpu_ns is not None and visit.cpu_ns > 0
    assert (await again(A, 1, busy))[0].cpu_ns is None


async def test_a_process_that_is_not_there_is_named() -> None:
    with pytest.raises(SpecError, match="A: there is no process 4194304"):
        await again(replace(A, pid=4_194_304), 1, Runs())
