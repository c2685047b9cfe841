"""Who is let in and who waits, and that every slot comes back."""

import asyncio

import pytest

from server.admission import admission as admission_module
from server.admission.admission import Admission
from server.admission.permits import Permit
from server.config import AdmissionSettings, DegradeSettings, SloSettings
from server.errors import ClientGone
from server.request import HIGH, LOW, NORMAL
from tests.server.admission.tickets import PLENTY, Owner, entered, give_back, opened, outcome, request_of, slow, waits
from tests.support.waiting import DEADLINE_S, turns, until


async def test_there_are_as_many_slots_as_both_the_operator_and_the_engine_allow() -> None:
    for most, engines, limit in ((8, 4, 4), (4, 8, 4), (None, 8, 8)):
        admission = Admission(AdmissionSettings(max_batch_size=most), max_wait=1)
        admission.open(max_num_seqs=engines, max_batch_tokens=100)
        assert admission.slots.limit == limit


async def test_requests_enter_until_the_slots_are_taken_and_then_as_they_come_back() -> None:
    admission = opened(2)
    first, second, third = (admission.apply(request_of(), PLENTY) for _ in range(3))
    assert (waits(first), waits(second), waits(third)) == (False, False, True)
    give_back(second)
    assert not waits(third)
    give_back(first, third)
    assert admission.slots.in_use == 0


async def test_a_request_with_more_sequences_than_slots_takes_them_all_once_they_are_free() -> None:
    admission = opened(4)
    small = admission.apply(request_of(), PLENTY)
    wide = admission.apply(request_of("b", n=9), PLENTY)
    late = admission.apply(request_of("c"), PLENTY)
    assert waits(wide)
    give_back(small)
    assert (waits(wide), admission.slots.in_use) == (False, 4)
    assert waits(late)  # it does not slip past
    give_back(wide, late)


async def test_a_permits_slots_are_kept_until_the_engine_has_let_go() -> None:
    admission = opened(1)
    entered: list[Permit] = []

    async def serve() -> None:
        async with admission.permit(admission.apply(request_of(), PLENTY)) as permit:
            permit.submitted()
            entered.append(permit)

    task = asyncio.create_task(serve())
    await until(lambda: entered)
    await turns()
    assert not task.done()
    assert admission.slots.in_use == 1
    entered[0].released()
    await asyncio.wait_for(task, DEADLINE_S)
    assert admission.slots.in_use == 0


async def test_an_engine_that_never_confirms_an_abort_costs_its_slots_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission_module, "RELEASE_DEADLINE_S", 0.01)
    admission = opened(1)
    async with admission.permit(admission.apply(request_of(), PLENTY)) as permit:
        permit.submitted()
    assert admission.slots.in_use == 0
    permit.released()  # it does, too late
    assert admission.slots.in_use == 0


async def test_a_withdrawn_ticket_leaves_at_once_and_the_next_goes() -> None:
    admission = opened(1)
    running, withdrawn, after = (admission.apply(request_of(), PLENTY) for _ in range(3))
    withdrawn.withdraw()
    withdrawn.withdraw()
    assert isinstance(await outcome(admission, withdrawn), ClientGone)
    assert admission.queue.waiting == (after,)
    give_back(running, after)


async def test_a_ticket_withdrawn_before_its_turn_is_waited_for_never_enters() -> None:
    admission = opened(1)
    running, withdrawn = (admission.apply(request_of(), PLENTY) for _ in range(2))
    withdrawn.withdraw()
    give_back(running)
    assert isinstance(await outcome(admission, withdrawn), ClientGone)
    assert (admission.slots.in_use, len(admission.queue)) == (0, 0)


async def test_a_wait_cancelled_at_the_moment_of_its_grant_leaks_no_slot() -> None:
    admission = opened(1)
    running, late = (admission.apply(request_of(), PLENTY) for _ in range(2))
    task = asyncio.create_task(outcome(admission, late))
    await turns()
    give_back(running)
    assert not waits(late)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert admission.slots.in_use == 0


async def test_a_wait_that_is_over_at_the_moment_of_its_grant_leaks_no_slot() -> None:
    admission = opened(1, max_wait=0.02)
    running, late = (admission.apply(request_of(), PLENTY) for _ in range(2))
    task = asyncio.create_task(outcome(admission, late))
    await turns()
    asyncio.get_running_loop().call_at(late.arrived + admission.max_wait, give_back, running)
    await task
    assert (admission.slots.in_use, len(admission.queue)) == (0, 0)


async def test_classes_and_callers_are_served_in_the_queues_order() -> None:
    admission = opened(1)
    running = admission.apply(request_of(), PLENTY)
    order = [("a", LOW), ("b", NORMAL), ("c", HIGH)]
    low, normal, high = (admission.apply(request_of(caller, rank=rank), PLENTY) for caller, rank in order)
    for ticket in (high, normal, low):
        assert waits(ticket)
        give_back(running)
        assert not waits(ticket)
        running = ticket
    give_back(running)


async def test_a_limit_raised_by_a_good_answer_lets_the_next_in_at_once() -> None:
    admission = opened(8, slo=SloSettings(tpot_p99_ms=100))
    controller = admission.controller
    assert controller is not None
    while controller.limit > 3:
        admission.took_per_token(1.0)
    assert admission.slots.limit == 3
    tickets = [admission.apply(request_of(), PLENTY) for _ in range(4)]
    assert entered(tickets) == 3
    while controller.limit == 3:
        admission.took_per_token(0.01)
    assert (admission.slots.limit, entered(tickets)) == (4, 4)
    give_back(*tickets)


async def test_pressure_is_a_wait_foreseen_for_a_low_class_where_answers_may_be_cut() -> None:
    cut = DegradeSettings(max_tokens=10, from_wait=1)
    admission = slow(opened(1, degrade=cut), 5.0)
    assert not admission.pressure(Owner("low", LOW))
    running = admission.apply(request_of(), PLENTY)
    assert admission.pressure(Owner("low", LOW))
    assert not admission.pressure(Owner("normal", NORMAL))
    assert not admission.pressure(Owner("high", HIGH))
    give_back(running)
    off = slow(opened(1), 5.0)
    give_back_later = off.apply(request_of(), PLENTY)
    assert not off.pressure(Owner("low", LOW))
    give_back(give_back_later)
