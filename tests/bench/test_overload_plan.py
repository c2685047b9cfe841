import random
from statistics import fmean, median

import orjson
import pytest

from bench.overload_plan import PLAN_STRIDE, Lengths, Phase, Plan, Request, Workload, make_plan

WORKLOAD = Workload(Lengths(16, 128, 1024, 0.9), Lengths(8, 48, 256, 0.7), seed=1)


def plan(rate: float = 10.0, *, seed: int = 5, number: int = 1, warmup_s: float = 0.0) -> Plan:
    return make_plan(WORKLOAD, [Phase(rate, 20.0)], seed=seed, number=number, warmup_s=warmup_s)


def test_equal_seeds_give_equal_plans_and_other_seeds_other_arrivals() -> None:
    assert plan() == plan()
    assert plan().offsets != plan(seed=6).offsets


def test_every_load_asks_for_the_same_lengths_but_shares_no_prompt_with_another() -> None:
    slow, fast = plan(5.0, number=1), plan(10.0, number=2)
    lengths = [(request.prompt_tokens, request.output_tokens) for request in fast.requests]
    assert lengths[: len(slow.requests)] == [(one.prompt_tokens, one.output_tokens) for one in slow.requests]
    assert not {one.number for one in slow.requests} & {one.number for one in fast.requests}
    assert slow.requests[0].number == PLAN_STRIDE


def test_lengths_stay_within_their_bounds_around_their_median() -> None:
    rng = random.Random(1)
    drawn = [WORKLOAD.prompt.draw(rng) for _ in range(4000)]
    assert min(drawn) >= 16 and max(drawn) == 1024
    assert 118 < median(drawn) < 138 < fmean(drawn)


def test_a_phase_lasts_for_its_seconds_and_has_its_arrivals() -> None:
    for phase in (Phase(10.0, 20.0), Phase(10.0, 1.0, arrivals=300)):
        offsets = phase.offsets(seed=3)
        assert len(offsets) >= max(phase.arrivals, 150)
        assert offsets == sorted(offsets)
    assert Phase(10.0, 20.0).offsets(seed=3)[-1] <= 20.0


def test_the_warm_up_comes_first_and_is_not_measured() -> None:
    warm = plan(warmup_s=5.0)
    assert 20 < warm.warmup < 100
    assert warm.offsets[warm.warmup - 1] <= 5.0 < warm.offsets[warm.warmup]
    assert len(warm.measured) == len(warm.requests) - warm.warmup == len(warm.offsets) - warm.warmup
    assert warm.window_s == 20.0


def test_the_window_reaches_to_the_last_arrival_where_that_comes_after_the_seconds() -> None:
    found = make_plan(WORKLOAD, [Phase(10.0, 1.0, arrivals=100)], seed=5, number=1)
    assert found.window_s == found.offsets[-1] > 1.0


def test_phases_follow_one_another() -> None:
    step = make_plan(WORKLOAD, [Phase(1.0, 50.0), Phase(20.0, 50.0), Phase(1.0, 50.0)], seed=5, number=1)
    counts = [sum(50 * index <= offset < 50 * (index + 1) for offset in step.offsets) for index in range(3)]
    assert counts[1] > 5 * max(counts[0], counts[2]) > 0
    assert step.window_s == 150.0 and list(step.offsets) == sorted(step.offsets)


def test_a_body_streams_its_tokens_exactly() -> None:
    body = orjson.loads(Request(7, 118, 32).body("m"))
    assert body["max_tokens"] == 32 and body["ignore_eos"] and body["stream"]
    assert body["stream_options"] == {"include_usage": True}
    assert len(body["prompt"].split("words: ")[1].split()) == 100
    assert "include_timings" not in body


def test_a_body_can_ask_for_less_and_for_timings() -> None:
    body = orjson.loads(Request(7, 118, 32).body("m", max_tokens=1, timings=True))
    assert (body["max_tokens"], body["include_timings"]) == (1, True)


@pytest.mark.parametrize("tokens", [1, 16])
def test_the_shortest_prompt_still_has_a_word(tokens: int) -> None:
    assert orjson.loads(Request(7, tokens, 1).body("m"))["prompt"].split("words: ")[1].rstrip(".")
