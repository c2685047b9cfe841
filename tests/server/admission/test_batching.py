"""When prompts are held back, and what ends that; first the rule alone, then with what it does to their entry."""

import asyncio

import pytest

from server.admission.admission import Admission
from server.admission.batching import Batching
from server.admission.permits import Slots
from server.admission.queue import FairQueue
from server.admission.ticket import Ticket
from server.config import AdmissionSettings
from tests.server.admission.tickets import give_back, request_of, ticket_of
from tests.support.waiting import turns, until

DELAY = 1.0
LONG = 10.0  # seconds: a test that sits through it has failed


def queue_of(*tickets: Ticket) -> FairQueue:
    queue = FairQueue()
    for ticket in tickets:
        queue.push(ticket)
    return queue


def slots_of(limit: int = 16, in_use: int = 1) -> Slots:
    slots = Slots(limit)
    slots.in_use = in_use
    return slots


def batching(*sizes: int, delay: float = DELAY, max_tokens: int = 1000) -> Batching:
    return Batching(delay, sizes, max_tokens)


async def test_a_prompt_is_held_for_what_is_left_of_the_delay() -> None:
    queue = queue_of(ticket_of(arrived=5.0))
    waits = [batching().hold(queue, slots_of(), now) for now in (5.0, 5.25, 6.0, 9.0)]
    assert waits == [1.0, 0.75, 0.0, 0.0]


async def test_the_first_to_come_sets_the_end_for_all() -> None:
    queue = queue_of(ticket_of(arrived=5.0), ticket_of("b", arrived=5.9))
    assert batching().hold(queue, slots_of(), 5.9) == pytest.approx(0.1)


async def test_nothing_is_held_while_the_engine_is_idle() -> None:
    assert batching().hold(queue_of(ticket_of()), slots_of(in_use=0), 0.0) == 0


async def test_nothing_is_held_when_it_is_off_or_nobody_waits() -> None:
    assert batching(delay=0.0).hold(queue_of(ticket_of()), slots_of(), 0.0) == 0
    assert batching().hold(FairQueue(), slots_of(), 0.0) == 0


async def test_sequences_of_a_preferred_size_go_at_once() -> None:
    queue = queue_of(ticket_of(n=2), ticket_of("b"))
    assert batching(4, 8).hold(queue, slots_of(), 0.0) == DELAY
    queue.push(ticket_of("c"))
    assert batching(4, 8).hold(queue, slots_of(), 0.0) == 0


async def test_prompts_that_fill_a_step_go_at_once() -> None:
    queue = queue_of(ticket_of(tokens=999))
    assert batching().hold(queue, slots_of(), 0.0) == DELAY
    queue.push(ticket_of(tokens=1))
    assert batching().hold(queue, slots_of(), 0.0) == 0


async def test_when_nobody_else_could_join_there_is_nothing_to_wait_for() -> None:
    queue = queue_of(ticket_of(n=3))
    assert batching().hold(queue, slots_of(limit=5), 0.0) == DELAY
    assert batching().hold(queue, slots_of(limit=4), 0.0) == 0
    assert batching().hold(queue, slots_of(limit=1, in_use=2), 0.0) == 0


def open_admission(delay: float, *sizes: int) -> Admission:
    settings = AdmissionSettings(max_queue_delay=delay, preferred_batch_size=sizes)
    admission = Admission(settings, max_wait=60)
    admission.open(max_num_seqs=64, max_batch_tokens=1000)
    return admission


def granted(*tickets: Ticket) -> list[bool]:
    return [ticket.granted.done() for ticket in tickets]


async def test_prompts_that_arrive_within_the_delay_enter_together() -> None:
    admission = open_admission(0.3)
    running = admission.apply(request_of(), 60)
    assert granted(running) == [True]  # the engine was idle
    held = [admission.apply(request_of(caller), 60) for caller in "abc"]
    assert granted(*held) == [False] * 3
    await until(lambda: any(granted(*held)))
    assert granted(*held) == [True] * 3
    give_back(running, *held)
    assert (admission.slots.in_use, len(admission.queue)) == (0, 0)


async def test_the_preferred_size_ends_the_wait_of_all() -> None:
    admission = open_admission(LONG, 3)
    running = admission.apply(request_of(), 60)
    held = [admission.apply(request_of(caller), 60) for caller in "ab"]
    await turns()
    assert granted(*held) == [False] * 2
    held.append(admission.apply(request_of("c"), 60))
    assert granted(*held) == [True] * 3
    give_back(running, *held)


async def test_what_is_held_goes_when_the_engine_becomes_idle() -> None:
    admission = open_admission(LONG)
    running = admission.apply(request_of(), 60)
    held = admission.apply(request_of("b"), 60)
    assert granted(held) == [False]
    give_back(running)
    assert granted(held) == [True]
    give_back(held)


async def test_what_leaves_while_it_is_held_wakes_nobody_and_leaves_no_alarm() -> None:
    admission = open_admission(LONG)
    running = admission.apply(request_of(), 60)
    held = admission.apply(request_of("b"), 60)

    async def enter() -> None:
        async with admission.permit(held):
            raise AssertionError

    waiting = asyncio.create_task(enter())
    await turns()
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    give_back(running)
    assert (admission.slots.in_use, len(admission.queue), admission._alarm) == (0, 0, None)
