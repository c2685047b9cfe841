"""The order of service, against what its rule promises. Everything here is bookkeeping: nothing waits."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.admission.queue import QUANTUM, FairQueue
from server.admission.ticket import Load, Ticket
from server.request import HIGH, LOW, NORMAL
from tests.server.admission.tickets import ticket_of

BEHIND_ALL = LOW + 1  # a class that is nobody's: everything that waits is ahead of it
SIZES = st.integers(1, 3 * QUANTUM) | st.integers(1, 100 * QUANTUM)
BACKLOGS = st.lists(st.lists(SIZES, min_size=1, max_size=30), min_size=2, max_size=5)
TICKETS = st.tuples(st.sampled_from("abc"), SIZES, st.sampled_from([HIGH, NORMAL, LOW]), st.integers(0, 9))


def queue_of(*tickets: Ticket) -> FairQueue:
    queue = FairQueue()
    for ticket in tickets:
        queue.push(ticket)
    return queue


def served(queue: FairQueue) -> Iterator[Ticket]:
    """Take whatever is next, until nothing waits."""
    while (ticket := queue.peek()) is not None:
        queue.take(ticket)
        yield ticket


async def test_who_came_first_goes_first_where_nothing_else_tells() -> None:
    tickets = [ticket_of() for _ in range(5)]
    assert list(served(queue_of(*tickets))) == tickets


async def test_nothing_of_a_lower_class_goes_before_all_of_a_higher_one() -> None:
    ranks = [LOW, NORMAL, HIGH, NORMAL, LOW, HIGH]
    queue = queue_of(*(ticket_of(caller, 5 * QUANTUM, rank=rank) for caller, rank in zip("abcabc", ranks, strict=True)))
    assert [ticket.rank for ticket in served(queue)] == sorted(ranks)


async def test_a_caller_has_a_line_of_its_own_in_each_class() -> None:
    low, high = ticket_of(rank=LOW), ticket_of(rank=HIGH)
    assert list(served(queue_of(low, high))) == [high, low]


async def test_within_a_caller_the_earliest_deadline_goes_first() -> None:
    queue = queue_of(*(ticket_of(deadline=deadline) for deadline in (5, 1, 3, 2, 4)))
    assert [ticket.deadline for ticket in served(queue)] == [1, 2, 3, 4, 5]


async def test_an_early_deadline_is_no_way_past_other_callers() -> None:
    queue = queue_of(ticket_of("a", QUANTUM, deadline=9), ticket_of("b", QUANTUM, deadline=1))
    assert [ticket.caller for ticket in served(queue)] == ["a", "b"]


@given(BACKLOGS)
async def test_callers_with_a_backlog_get_equal_shares_of_tokens(backlog: list[list[int]]) -> None:
    queue = queue_of(*(ticket_of(str(caller), size) for caller, sizes in enumerate(backlog) for size in sizes))
    left = [len(sizes) for sizes in backlog]
    shares = [0.0] * len(backlog)
    largest = max(map(max, backlog))
    for ticket in served(queue):
        caller = int(ticket.caller)
        shares[caller] += ticket.tokens
        left[caller] -= 1
        assert max(shares) - min(shares) <= QUANTUM + largest
        if not left[caller]:  # no backlog any more
            break


@given(BACKLOGS, st.integers(0, 40), st.integers(1, QUANTUM))
async def test_a_light_caller_waits_for_one_turn_of_each_other(
    backlog: list[list[int]], before: int, light: int
) -> None:
    queue = queue_of(*(ticket_of(str(caller), size) for caller, sizes in enumerate(backlog) for size in sizes))
    for _, _ in zip(range(before), served(queue), strict=False):
        pass
    newcomer = ticket_of("light", light)
    queue.push(newcomer)
    spent: Counter[str] = Counter()
    for ticket in served(queue):
        if ticket is newcomer:
            break
        spent[ticket.caller] += int(ticket.tokens)
    largest = max(map(max, backlog))
    assert all(tokens <= QUANTUM + largest for tokens in spent.values())


async def test_a_flood_that_came_first_delays_a_light_caller_by_one_turn_only() -> None:
    queue = queue_of(*(ticket_of("flood", QUANTUM // 4) for _ in range(100)), ticket_of("light", QUANTUM // 4))
    order = [ticket.caller for ticket in served(queue)]
    assert order.index("light") == 4


@given(BACKLOGS)
async def test_the_order_is_that_of_turns_given_one_by_one(backlog: list[list[int]]) -> None:
    queue = queue_of(*(ticket_of(str(caller), size) for caller, sizes in enumerate(backlog) for size in sizes))
    order = [(int(ticket.caller), ticket.tokens) for ticket in served(queue)]
    assert order == list(round_robin(backlog))


def round_robin(backlog: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Deficit round-robin as its paper has it, but that who has nothing waiting is gone with all it may spend."""
    lines = {caller: list(sizes) for caller, sizes in enumerate(backlog)}
    deficits = dict.fromkeys(lines, 0)
    while lines:
        for caller, line in list(lines.items()):
            deficits[caller] += QUANTUM
            while line and line[0] <= deficits[caller]:
                deficits[caller] -= line[0]
                yield caller, line.pop(0)
            if not line:
                del lines[caller]


async def test_requests_of_millions_of_tokens_from_hundreds_of_callers_find_their_order_at_once() -> None:
    size = 10**12  # counted up to by turns it would take hours
    queue = queue_of(*(ticket_of(str(caller), size + caller) for caller in range(300)))
    assert [ticket.caller for ticket in served(queue)][:QUANTUM] == [str(caller) for caller in range(QUANTUM)]


@pytest.mark.parametrize("overtaken", [True, False])
async def test_nobody_saves_up_turns_for_a_flood(overtaken: bool) -> None:
    """A huge request waits long, and then leaves or is overtaken: small ones must not spend what it had gathered."""
    huge = ticket_of("saver", 100 * QUANTUM, deadline=9)
    queue = queue_of(huge, *(ticket_of("busy", QUANTUM) for _ in range(60)))
    for _, _ in zip(range(50), served(queue), strict=False):
        pass
    for _ in range(100):
        queue.push(ticket_of("saver", QUANTUM // 4, deadline=1))
    if not overtaken:
        queue.remove(huge)
    light = ticket_of("light", QUANTUM // 4)
    queue.push(light)
    before = [ticket.tokens for ticket in iter(partial(next, served(queue)), light) if ticket.caller == "saver"]
    assert sum(before) <= 2 * QUANTUM


async def test_who_comes_back_does_not_bring_what_an_earlier_turn_left_over() -> None:
    queue = queue_of(ticket_of("a", 1))
    assert len(list(served(queue))) == 1  # almost a whole turn is unspent
    for _ in range(2):
        queue.push(ticket_of("a", QUANTUM))
    queue.push(ticket_of("b", QUANTUM))
    assert [ticket.caller for ticket in served(queue)] == ["a", "b", "a"]


async def test_what_is_shown_next_stays_next_until_something_changes() -> None:
    queue = queue_of(ticket_of("a", 5 * QUANTUM), ticket_of("b", 4 * QUANTUM))
    first = queue.peek()
    assert [queue.peek() for _ in range(5)] == [first] * 5


@given(st.lists(TICKETS, max_size=25), st.data())
async def test_a_ticket_can_be_removed_from_anywhere(pushed: list[Any], data: st.DataObject) -> None:
    tickets = [ticket_of(caller, size, rank=rank, deadline=deadline) for caller, size, rank, deadline in pushed]
    queue = queue_of(*tickets)
    gone = data.draw(st.sets(st.sampled_from(tickets))) if tickets else set()
    for ticket in gone:
        queue.remove(ticket)
        queue.remove(ticket)
    assert set(served(queue)) == set(tickets) - gone
    assert queue.load == Load()


OPERATIONS = st.lists(TICKETS | st.just("take") | st.integers(0, 30), max_size=60)  # push, take, remove


@settings(max_examples=300)
@given(OPERATIONS)
async def test_sums_and_order_are_exact_after_whatever_came_and_went(operations: list[Any]) -> None:
    queue = FairQueue()
    waiting: list[Ticket] = []
    for operation in operations:
        match operation:
            case (caller, size, rank, deadline):
                waiting.append(ticket_of(caller, size, rank=rank, n=1 + size % 3, deadline=deadline))
                queue.push(waiting[-1])
            case "take" if waiting:
                ticket = queue.peek()
                assert ticket is not None
                assert ticket.rank == min(each.rank for each in waiting)
                line = [each for each in waiting if (each.caller, each.rank) == (ticket.caller, ticket.rank)]
                assert ticket is min(line, key=lambda each: each.deadline)
                queue.take(ticket)
                waiting.remove(ticket)
            case int(place) if place < len(waiting):
                queue.remove(waiting.pop(place))
        whole = Load(sum(each.load.prompt_tokens for each in waiting), sum(each.load.sequences for each in waiting))
        assert queue.load == whole
        assert queue.ahead("nobody", BEHIND_ALL, 1) == whole  # the sums of all lines
        assert queue.waiting == tuple(waiting)
        assert queue.oldest is (waiting[0] if waiting else None)
        assert len(queue) == len(waiting)


async def test_what_was_taken_out_is_not_kept_though_its_line_never_empties() -> None:
    queue = FairQueue()
    queue.push(ticket_of(deadline=0))
    for _ in range(5000):
        patient = ticket_of(deadline=1e9)
        queue.push(patient)
        queue.remove(patient)
    (flow,) = queue._classes[NORMAL].values()
    assert len(flow.heap) < 100


@given(st.lists(TICKETS, max_size=30), st.integers(0, 10), TICKETS)
async def test_what_is_foreseen_ahead_of_a_newcomer_is_what_goes_before_it(
    pushed: list[Any], before: int, coming: Any
) -> None:
    queue = queue_of(*(ticket_of(caller, size, rank=rank, deadline=d) for caller, size, rank, d in pushed))
    for _, _ in zip(range(before), served(queue), strict=False):
        pass
    caller, size, rank, _ = coming
    rivals = len({ticket.caller for ticket in queue.waiting if ticket.rank == rank} - {caller})
    largest = max([size, *(int(ticket.tokens) for ticket in queue.waiting)])
    foreseen = queue.ahead(caller, rank, size).prompt_tokens
    newcomer = ticket_of(caller, size, rank=rank, deadline=10)
    queue.push(newcomer)
    real = 0.0
    for ticket in served(queue):
        if ticket is newcomer:
            break
        real += ticket.tokens
    assert abs(real - foreseen) <= rivals * (QUANTUM + 2 * largest)


async def test_all_of_ones_own_line_is_ahead_and_of_others_as_much_as_goes_meanwhile() -> None:
    queue = queue_of(
        ticket_of("own", 100, n=2),
        ticket_of("long", 1000, n=4),
        ticket_of("short", 60, n=1),
        ticket_of("urgent", 7, rank=HIGH, n=8),
        ticket_of("idle", 999, rank=LOW, n=16),
    )
    assert queue.ahead("own", NORMAL, 100) == Load(100 + 200 + 60 + 7, 2 + 4 / 5 + 1 + 8)
    assert queue.ahead("new", NORMAL, 100) == Load(100 + 100 + 60 + 7, 2 + 4 / 10 + 1 + 8)


async def test_nothing_is_ahead_in_an_empty_queue() -> None:
    assert FairQueue().ahead("a", NORMAL, 100) == Load()


async def test_the_longest_lines_latest_gives_way() -> None:
    long = [ticket_of("long", 10, deadline=-number) for number in range(3)]
    queue = queue_of(ticket_of("short", 29), *long)
    assert queue.victim("new", NORMAL) is long[-1]
    assert queue.victim("short", NORMAL) is long[-1]


@pytest.mark.parametrize(("caller", "tokens"), [("long", 50), ("even", 30)])
async def test_nobody_gives_way_to_who_has_as_much_waiting(caller: str, tokens: int) -> None:
    queue = queue_of(ticket_of("long", 30), ticket_of(caller, tokens))
    assert queue.victim(caller, NORMAL) is None


async def test_the_lowest_class_gives_way_first_and_never_to_a_lower_one() -> None:
    low = ticket_of("low", 1, rank=LOW)
    queue = queue_of(ticket_of("normal", 1000), low)
    assert queue.victim("new", NORMAL) is low
    assert queue.victim("normal", HIGH) is low
    queue.remove(low)
    assert queue.victim("new", LOW) is None


async def test_an_empty_queue_has_nobody_to_give_way() -> None:
    assert FairQueue().victim("a", HIGH) is None
