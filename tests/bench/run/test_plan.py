from dataclasses import replace
from pathlib import Path

import pytest

from bench.run.plan import plan, share, users
from bench.run.spec import Closed, Open, Prompts, Spec, SpecError

CLOSED = Spec("http://x", "m", Closed(7), 30, warmup=5)
OPEN = replace(CLOSED, load=Open("poisson", 20.0))


def test_the_warm_up_comes_first_and_is_not_measured() -> None:
    found = plan(CLOSED)
    assert [one.measured for one in found] == [False] * 5 + [True] * 30
    assert {one.offset_s for one in found} == {None}


def test_an_open_loop_has_a_time_for_each_conversation() -> None:
    times = [one.offset_s for one in plan(OPEN)]
    assert len(times) == 35 and times == sorted(times, key=lambda time: time or 0.0)


def test_several_turns_are_counted_one_by_one() -> None:
    found = plan(replace(OPEN, prompts=Prompts(turns=4)))
    turns = [sum(len(one.conversation.turns) for one in found if one.measured is kind) for kind in (False, True)]
    assert turns == [5, 30]
    assert len(found) == 2 + 8


def test_every_process_makes_the_same_plan() -> None:
    assert plan(OPEN) == plan(OPEN)
    assert plan(OPEN) != plan(replace(OPEN, seed=1))


@pytest.mark.parametrize("spec", [CLOSED, OPEN])
@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_shares_have_all_there_is_and_nothing_twice(spec: Spec, processes: int) -> None:
    found = plan(spec)
    shares = [share(found, spec.load, index, processes) for index in range(processes)]
    assert sorted(found.index(one) for part in shares for one in part) == list(range(35))


def test_a_process_has_conversations_for_its_users() -> None:
    load = Closed(5)
    found = plan(replace(CLOSED, load=load, requests=50, warmup=0))
    assert [users(load, index, 2) for index in range(2)] == [3, 2]
    assert [len(share(found, load, index, 2)) for index in range(2)] == [30, 20]


def test_a_trace_gives_times_and_lengths_to_warm_up_and_run(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    rows = [f'{{"timestamp": {10 + number}, "prompt_tokens": 5, "output_tokens": {number + 1}}}' for number in range(6)]
    path.write_text("\n".join(rows))
    found = plan(replace(OPEN, load=Open("trace", trace=path, speed=2.0), requests=4, warmup=2))
    assert [one.offset_s for one in found] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert [one.conversation.turns[0].output_tokens for one in found] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "spec",
    [
        replace(CLOSED, requests=0),
        replace(CLOSED, warmup=-1),
        replace(CLOSED, processes=0),
        replace(CLOSED, deadline_s=0.0),
        replace(CLOSED, load=Closed(0)),
        replace(OPEN, load=Open("trace")),
        replace(OPEN, load=Open(rate=0.0)),
    ],
)
def test_numbers_that_make_no_run_are_errors(spec: Spec) -> None:
    with pytest.raises(SpecError):
        plan(spec)
