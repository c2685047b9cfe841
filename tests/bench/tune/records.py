"""What searches may have found."""

from bench.tune.decide import Pairing, Ratio, Round, Trial, Visit
from bench.tune.search import Edge, Record
from bench.tune.space import Changes
from tests.bench.tune.simulated import SEQUENCES, plan

BETTER = {SEQUENCES: 128}
OTHER = {"admission.max_queue_delay": 0.02, "admission.preferred_batch_size": [4, 8]}


def visit(good: int, *faults: str) -> Visit:
    return Visit([index < good for index in range(100)], 50.0, faults)


def trials() -> list[Trial]:
    return [
        Trial(OTHER, 0, 100.0, visit(50)),
        Trial({"admission.max_wait": 0.5}, 0, 150.0, None, "exited with <1>"),
        Trial(BETTER, 0, 200.0, visit(90)),
        Trial(BETTER, 1, 300.0, visit(95)),
    ]


def pairing(changes: Changes, value: float, rounds: int = 1) -> Pairing:
    found = Ratio(value, value - 0.3, value + 0.3, 0.05, 0.99375)
    base, other = [visit(50), visit(52)], [visit(95, "the generator was late"), visit(97)]
    return Pairing({}, changes, 2.5, 400.0, [Round(base, other, found)] * rounds)


def won() -> Record:
    edges = [Edge({}, 2.0, True, 60.0), Edge(BETTER, 4.0, True, 500.0)]
    pairings = [pairing(BETTER, 1.9, rounds=2), pairing(OTHER, 1.0)]
    return Record(plan(), edges, trials(), pairings, ended="all finalists were paired", seconds=600.0)


def lost(paired: int) -> Record:
    pairings = [pairing(OTHER, 1.0)] * paired
    return Record(plan(), [Edge({}, 2.0, True, 60.0)], trials(), pairings, ended="the budget was used up", seconds=9.0)
