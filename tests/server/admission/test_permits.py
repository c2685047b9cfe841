from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.admission.permits import Permit, Slots


class Taken:
    """A permit out of 8 slots, and how many came back each time."""

    def __init__(self, slots: int, sequences: int) -> None:
        self.slots = Slots(8)
        self.slots.in_use = slots
        self.freed: list[int] = []
        self.permit = Permit(slots, sequences, 10, 0.0, self._on_freed)

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.permit.submitted()

    def release(self, count: int) -> None:
        for _ in range(count):
            self.permit.released()

    def _on_freed(self, permit: Permit, slots: int) -> None:
        assert permit is self.permit
        self.freed.append(slots)
        self.slots.in_use -= slots


def test_free_slots_are_negative_once_the_limit_is_below_what_is_in_use() -> None:
    slots = Slots(4)
    slots.in_use = 3
    assert slots.free == 1
    slots.limit = 2
    assert slots.free == -1


def test_each_sequence_gives_its_slot_back_and_the_last_ends_the_permit() -> None:
    taken = Taken(3, 3)
    taken.submit(3)
    taken.release(2)
    assert (taken.freed, taken.permit.returned.is_set()) == ([1, 1], False)
    taken.release(1)
    assert (taken.freed, taken.permit.returned.is_set()) == ([1, 1, 1], True)


def test_a_capped_permit_keeps_all_its_slots_until_fewer_sequences_than_those_are_left() -> None:
    taken = Taken(2, 5)
    taken.submit(5)
    taken.release(3)
    assert taken.freed == []
    taken.release(2)
    assert taken.freed == [1, 1]


def test_what_was_never_submitted_goes_back_at_the_close() -> None:
    taken = Taken(3, 3)
    taken.submit(1)
    taken.permit.close()
    assert (taken.freed, taken.permit.held) == ([2], 1)
    taken.release(1)
    assert (taken.freed, taken.permit.returned.is_set()) == ([2, 1], True)


def test_a_permit_nothing_was_submitted_under_ends_at_its_close() -> None:
    taken = Taken(2, 4)
    taken.permit.close()
    assert (taken.freed, taken.permit.returned.is_set()) == ([2], True)


def test_a_sequence_released_within_its_own_submission_counts_once() -> None:
    taken = Taken(2, 2)
    taken.release(1)
    taken.submit(2)
    taken.permit.close()
    assert taken.freed == [1]
    taken.release(1)
    assert taken.freed == [1, 1]


def test_all_can_be_given_back_at_once_and_later_releases_give_nothing() -> None:
    taken = Taken(3, 3)
    taken.submit(3)
    taken.permit.release_all()
    taken.permit.release_all()
    taken.release(3)
    taken.permit.close()
    assert (taken.freed, taken.permit.returned.is_set()) == ([3], True)


@pytest.mark.parametrize("first", ["close", "release_all"])
def test_an_engine_that_releases_twice_frees_no_more_than_was_held(first: str) -> None:
    taken = Taken(2, 2)
    taken.submit(2)
    getattr(taken.permit, first)()
    taken.release(5)
    assert (sum(taken.freed), taken.slots.in_use) == (2, 0)


STEPS = st.lists(st.sampled_from(["submit", "release", "close", "release_all"]), max_size=30)


@given(st.integers(1, 6), st.integers(1, 4), STEPS)
def test_whatever_the_order_each_slot_comes_back_once(sequences: int, cap: int, steps: list[str]) -> None:
    taken = Taken(min(sequences, cap), sequences)
    for step in possible(steps, sequences):
        match step:
            case "submit":
                taken.submit(1)
            case "release":
                taken.release(1)
            case "close":
                taken.permit.close()
            case "release_all":
                taken.permit.release_all()
        assert sum(taken.freed) + taken.permit.held == min(sequences, cap)
        assert taken.slots.in_use == taken.permit.held
        assert taken.permit.returned.is_set() == (taken.permit.held == 0)


def possible(steps: list[str], sequences: int) -> Iterator[str]:
    """Without submissions after the close or past the last sequence, and releases of what was not submitted."""
    inside = submitted = 0
    closed = False
    for step in (*steps, "close", *["release"] * sequences):
        if step == "submit":
            if closed or submitted == sequences:
                continue
            inside, submitted = inside + 1, submitted + 1
        elif step == "release":
            if not inside:
                continue
            inside -= 1
        closed = closed or step == "close"
        yield step
