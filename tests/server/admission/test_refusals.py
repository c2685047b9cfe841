"""Who is turned away, when, and what each refusal says."""

import asyncio
from typing import Any

import pytest

from server.admission.admission import Admission
from server.errors import Overloaded, RequestTimeout, ShuttingDown
from server.request import ANYBODY, HIGH, LOW
from tests.server.admission.tickets import PLENTY, Owner, give_back, opened, outcome, request_of, slow, waits
from tests.support.waiting import turns


async def refused(admission: Admission, timeout: float = PLENTY, **fields: Any) -> Overloaded:
    with pytest.raises(Overloaded) as caught:
        admission.apply(request_of(**fields), timeout)
    return caught.value


async def test_a_wait_foreseen_to_be_too_long_is_refused_with_its_figures() -> None:
    admission = slow(opened(2, max_wait=4), 20.0)
    running = [admission.apply(request_of(), PLENTY) for _ in range(2)]
    error = await refused(admission)
    assert error.figures == {
        "reason": "predicted_wait",
        "predicted_wait_s": 10.0,
        "max_wait_s": 4.0,
        "queued_requests": 0,
        "running_sequences": 2,
        "max_batch_size": 2,
    }
    assert error.retry_after == 6
    assert admission.refusals == {"predicted_wait": 1}
    give_back(*running)


async def test_a_wait_foreseen_to_be_longer_than_the_request_has_is_refused() -> None:
    admission = slow(opened(1), 3.0)
    running = admission.apply(request_of(), PLENTY)
    error = await refused(admission, timeout=2.5)
    assert (error.figures["reason"], error.figures["timeout_s"]) == ("deadline", 2.5)
    assert error.retry_after == 1
    patient = admission.apply(request_of(), 3.5)
    assert waits(patient)
    give_back(running, patient)


async def test_a_full_queue_refuses_the_next() -> None:
    admission = opened(1, max_queue_size=2)
    tickets = [admission.apply(request_of(), PLENTY) for _ in range(3)]
    error = await refused(admission)
    assert (error.figures["reason"], error.figures["max_queue_size"]) == ("queue_full", 2)
    assert (error.figures["queued_requests"], error.retry_after) == (2, 1)
    give_back(*tickets)


async def test_without_a_queue_a_request_enters_at_once_or_not_at_all() -> None:
    admission = opened(1, max_queue_size=0)
    running = admission.apply(request_of(), PLENTY)
    assert (await refused(admission)).figures["reason"] == "queue_full"
    give_back(running)
    give_back(admission.apply(request_of(), PLENTY))


async def test_a_real_wait_ends_after_max_wait_whatever_was_foreseen() -> None:
    admission = opened(1, max_wait=0.02)
    running = admission.apply(request_of(), PLENTY)
    error = await outcome(admission, admission.apply(request_of(), PLENTY))
    assert isinstance(error, Overloaded)
    assert (error.figures["reason"], error.figures["max_wait_s"]) == ("max_wait", 0.02)
    assert admission.refusals == {"max_wait": 1}
    give_back(running)
    assert (admission.slots.in_use, len(admission.queue)) == (0, 0)


@pytest.mark.parametrize("timeout", [0.0101, 0.0104, 0.0107, 0.0133, 0.0149, 0.02])
async def test_a_request_whose_own_time_ends_in_the_queue_is_told_so(timeout: float) -> None:
    admission = opened(1)
    running = admission.apply(request_of(), PLENTY)
    for _ in range(5):
        assert isinstance(await outcome(admission, admission.apply(request_of(), timeout)), RequestTimeout)
    assert admission.refusals == {}
    give_back(running)


async def test_the_reasons_have_an_order() -> None:
    admission = slow(opened(1, max_wait=2, max_queue_size=0), 3.0)
    running = admission.apply(request_of(), PLENTY)
    assert (await refused(admission, timeout=1)).figures["reason"] == "predicted_wait"  # and no time, and no room
    admission.max_wait = 10
    assert (await refused(admission, timeout=1)).figures["reason"] == "deadline"  # and no room
    assert (await refused(admission, timeout=9)).figures["reason"] == "queue_full"
    admission.close()
    with pytest.raises(ShuttingDown):
        admission.apply(request_of(), PLENTY)
    give_back(running)


@pytest.mark.parametrize(("hold_s", "retry_after"), [(1.5, 1), (4.2, 4), (100.0, 99), (1e6, 120)])
async def test_clients_are_told_to_come_back_when_the_wait_will_be_bearable(hold_s: float, retry_after: int) -> None:
    admission = slow(opened(1, max_wait=1), hold_s)
    running = admission.apply(request_of(), PLENTY)
    assert (await refused(admission)).retry_after == retry_after
    give_back(running)


async def test_in_a_full_queue_the_longest_lines_last_gives_way() -> None:
    admission = opened(1, max_queue_size=3)
    running, first, second, last = (admission.apply(request_of("flood", 100), PLENTY) for _ in range(4))
    gone = asyncio.create_task(outcome(admission, last))
    await turns()
    light = admission.apply(request_of("light", 10), PLENTY)
    error = await gone
    assert isinstance(error, Overloaded)
    assert error.figures["reason"] == "queue_full"
    assert admission.queue.waiting == (first, second, light)
    assert admission.refusals == {"queue_full": 1}
    give_back(running, first, light, second)
    assert (admission.slots.in_use, len(admission.queue)) == (0, 0)


async def test_a_full_queue_of_a_lower_class_gives_way_to_a_higher_one_and_not_the_other_way_round() -> None:
    admission = opened(1, max_queue_size=1)
    running, low = (admission.apply(request_of("a", rank=LOW), PLENTY) for _ in range(2))
    high = admission.apply(request_of("b", rank=HIGH), PLENTY)
    assert isinstance(await outcome(admission, low), Overloaded)
    assert (await refused(admission, caller="c", rank=LOW)).figures["reason"] == "queue_full"
    give_back(running, high)


async def test_the_end_is_told_to_all_who_wait_and_nobody_enters_any_more() -> None:
    admission = opened(1)
    running = admission.apply(request_of(), PLENTY)
    waiting = [asyncio.create_task(outcome(admission, admission.apply(request_of(), PLENTY))) for _ in range(3)]
    await turns()
    admission.close()
    assert [type(await task) for task in waiting] == [ShuttingDown] * 3
    for enter in (lambda: admission.apply(request_of(), PLENTY), lambda: admission.check(ANYBODY, 10)):
        with pytest.raises(ShuttingDown):
            enter()
    assert admission.slots.in_use == 1  # what runs may finish
    give_back(running)


async def test_the_check_at_the_door_foresees_from_the_bodys_size_what_apply_would() -> None:
    admission = opened(64, batch_tokens=50, max_wait=2)
    admission.forecast.prefilled(100, 1.0)
    for _ in range(100):
        admission.forecast.tokenized(body_bytes=1000, prompt_tokens=100)
    admission.check(ANYBODY, 10**6)  # there is room: whatever its size
    running, waiting = (admission.apply(request_of(prompt_tokens=size), PLENTY) for size in (250, 150))
    admission.check(Owner("new"), 100)  # 10 tokens: as much of the other line goes before it
    for caller, size in (("new", 1000), ("new", None), ("a", 100)):
        with pytest.raises(Overloaded) as caught:
            admission.check(Owner(caller), size)
        assert caught.value.figures["reason"] == "predicted_wait"
    give_back(running, waiting)


async def test_the_check_at_the_door_refuses_for_a_full_queue_whom_nobody_there_gives_way_to() -> None:
    admission = opened(1, max_queue_size=2)
    running, first, second = (admission.apply(request_of("flood"), PLENTY) for _ in range(3))
    with pytest.raises(Overloaded) as caught:
        admission.check(Owner("flood"), 10)
    assert caught.value.figures["reason"] == "queue_full"
    assert admission.refusals == {"queue_full": 1}
    admission.check(Owner("light"), 10)
    admission.check(Owner("flood", HIGH), 10)
    give_back(running, first, second)
    admission.check(Owner("flood"), 10)
