from bench.tune.propose import Proposer
from bench.tune.space import Changes, Knob, Space, key

WIDE = Space(
    [
        Knob("n", "engine", [{"n": 1}, {}, {"n": 3}, {"n": 4}, {"n": 5}], ordered=True),
        Knob("m", "engine", [{}, {"m": 1}, {"m": 2}]),
        Knob("flag", "server", [{}, {"flag": True}]),
    ]
)


def proposed(seed: int, count: int, score: float = 0.5) -> list[Changes]:
    proposer, found = Proposer(WIDE, seed, steps=4), list[Changes]()
    while len(found) < count and (changes := proposer.ask()) is not None:
        proposer.tell(changes, score)
        found.append(changes)
    return found


def test_nothing_is_proposed_twice_nor_the_settings_as_they_are() -> None:
    names = [key(changes) for changes in proposed(0, 12)]
    assert len(names) == len({*names, key({})}) - 1


def test_equal_seeds_propose_the_same() -> None:
    assert proposed(3, 10) == proposed(3, 10)
    assert proposed(3, 10) != proposed(4, 10)


def test_first_come_steps_of_each_knob() -> None:
    first = proposed(1, 4)
    assert all(len(changes) == 1 for changes in first)
    assert {name for changes in first[:3] for name in changes} == {"n", "m", "flag"}


def test_a_space_comes_to_its_end() -> None:
    proposer = Proposer(Space([Knob("flag", "server", [{}, {"flag": True}])]), 0, steps=4)
    assert proposer.ask() == {"flag": True}
    proposer.tell({"flag": True}, 1.0)
    assert proposer.ask() is None


def test_what_scored_well_is_proposed_more_often() -> None:
    more = Knob("k", "server", [{}, *({"k": number} for number in range(8))])
    proposer, late = Proposer(Space([*WIDE.knobs, more]), 0, steps=8), list[Changes]()
    for number in range(40):
        changes = proposer.ask()
        assert changes is not None
        proposer.tell(changes, 1.0 if changes.get("n", 2) >= 4 else 0.0)
        late += [changes] if number >= 20 else []
    assert sum(changes.get("n", 2) >= 4 for changes in late) > len(late) / 2  # two of the five, by chance


def test_what_is_proposed_over_changes_keeps_them_unless_it_changes_the_same() -> None:
    proposer, found = Proposer(WIDE, 0, 4, over={"n": 4}), list[Changes]()
    while len(found) < 12 and (changes := proposer.ask()) is not None:
        proposer.tell(changes, 0.5)
        found.append(changes)
    assert len({key(changes) for changes in found}) == 12
    assert all("n" in changes for changes in found) and {"n": 4} not in found
    assert {changes["n"] for changes in found} == {1, 3, 4, 5}
