"""A flood cannot take the last slots while others call."""

from server.admission.permits import Slots
from server.admission.shares import RECENT_S, Shares
from server.errors import Overloaded
from tests.server.admission.tickets import PLENTY, Owner, give_back, opened, request_of


def shares_of(*callers: str, at: float = 0.0) -> Shares:
    shares = Shares()
    for caller in callers:
        shares.call(caller, at)
    return shares


def test_alone_a_caller_may_have_every_slot() -> None:
    shares, slots = shares_of("a"), Slots(32)
    slots.in_use = 31
    shares.take("a", 31)
    assert not shares.closed_to("a", slots)


def test_the_last_slots_are_closed_to_who_has_its_share() -> None:
    shares, slots = shares_of("flood", "light"), Slots(32)
    shares.take("flood", 29)
    slots.in_use = 29
    assert not shares.closed_to("flood", slots)
    shares.take("flood", 1)
    slots.in_use = 30
    assert shares.closed_to("flood", slots)
    assert not shares.closed_to("light", slots)


def test_below_its_share_a_caller_may_have_the_last_slots_too() -> None:
    shares, slots = shares_of("a", "b"), Slots(4)
    shares.take("a", 1)
    shares.take("b", 2)
    slots.in_use = 3
    assert not shares.closed_to("a", slots)
    assert shares.closed_to("b", slots)


def test_who_has_not_called_for_a_minute_has_nothing_kept() -> None:
    shares, slots = shares_of("light"), Slots(32)
    shares.take("flood", 30)
    slots.in_use = 30
    shares.call("flood", RECENT_S)
    assert shares.closed_to("flood", slots)
    shares.call("flood", RECENT_S + 1)
    assert not shares.closed_to("flood", slots)


def test_of_very_few_slots_none_is_kept() -> None:
    shares, slots = shares_of("a", "b"), Slots(3)
    shares.take("a", 3)
    slots.in_use = 3
    assert not shares.closed_to("a", slots)


def test_who_has_given_everything_back_is_forgotten() -> None:
    shares = shares_of("a")
    shares.take("a", 2)
    shares.give("a", 1)
    shares.give("a", 1)
    assert not shares.held


async def test_beside_a_flood_a_light_caller_enters_at_once_and_the_flood_goes_on_when_it_is_alone() -> None:
    admission = opened(16)
    light = [admission.apply(request_of("light"), PLENTY)]
    flood = [admission.apply(request_of("flood"), PLENTY) for _ in range(40)]
    assert admission.slots.in_use == 15
    light.append(admission.apply(request_of("light"), PLENTY))
    assert light[-1].granted.done()
    assert admission.slots.in_use == 16
    give_back(*light, *flood)
    assert (admission.slots.in_use, len(admission.queue), admission.shares.held) == (0, 0, {})


async def test_a_full_queue_of_others_does_not_keep_a_light_caller_out() -> None:
    admission = opened(16, max_queue_size=4)
    light = admission.apply(request_of("light"), PLENTY)
    flood = []
    for _ in range(40):
        try:
            flood.append(admission.apply(request_of("flood"), PLENTY))
        except Overloaded:
            break
    waiting = admission.queue.waiting
    admission.check(Owner("light"), 10)
    second = admission.apply(request_of("light"), PLENTY)
    assert second.granted.done()
    assert admission.queue.waiting == waiting  # nobody had to give way
    give_back(light, second, *flood)
