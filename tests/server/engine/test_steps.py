"""The two rings become steps, each told once, and the sampling time of the step whose outputs have come."""

from pathlib import Path

import pytest

from sampling.probe.records import CORE_RING, WORKER_RING, CoreRecord, Step, WorkerRecord
from sampling.probe.ring import RingWriter
from server.engine.steps import MAX_UNJOINED, StepFeed


class Rings:
    def __init__(self, folder: Path) -> None:
        self.seen: list[Step] = []
        self.feed = StepFeed(folder, self.seen.append)
        self._core = RingWriter(folder / CORE_RING, len(CoreRecord._fields))
        self._worker = RingWriter(folder / WORKER_RING, len(WorkerRecord._fields))

    def core(self, number: int) -> None:
        """The scheduling loop has ended step `number`, whose outputs are stamped 1000 times that."""
        fields = dict.fromkeys(CoreRecord._fields, 1) | {"step": number, "stamp": 1000 * number, "overlapped": 0}
        self._core.write(*CoreRecord(**fields))

    def worker(self, number: int, sample: int) -> None:
        self._worker.write(*WorkerRecord(number, prepare=1, forward=2, sample=sample, finalize=3, device_gap=0))


@pytest.fixture
def rings(tmp_path: Path) -> Rings:
    return Rings(tmp_path)


def test_a_step_is_told_with_both_its_sides(rings: Rings) -> None:
    rings.worker(1, sample=7)
    rings.core(1)
    assert rings.feed.read(1000) == 7
    (step,) = rings.seen
    assert (step.number, step.stamp, step.forward, step.sample) == (1, 1000, 2, 7)
    assert rings.feed.read(1000) == 0
    assert len(rings.seen) == 1


def test_the_step_is_found_among_several(rings: Rings) -> None:
    for number in (1, 2, 3):
        rings.worker(number, sample=10 * number)
        rings.core(number)
    assert rings.feed.read(2000) == 20
    assert [step.number for step in rings.seen] == [1, 2, 3]


def test_a_message_that_is_no_steps_has_no_sampling_time(rings: Rings) -> None:
    rings.worker(1, sample=7)
    rings.core(1)
    assert rings.feed.read(999) == 0


def test_a_worker_ahead_of_its_loop_is_joined_later(rings: Rings) -> None:
    rings.worker(1, sample=7)
    rings.worker(2, sample=8)
    assert rings.feed.read(1000) == 0
    rings.core(1)
    rings.core(2)
    assert rings.feed.read(2000) == 8
    assert [step.sample for step in rings.seen] == [7, 8]


def test_a_side_that_was_lost_leaves_the_other_one_and_nothing_behind(rings: Rings) -> None:
    rings.core(1)
    assert rings.feed.read(1000) == 0
    assert rings.seen[0].busy == 0
    for number in range(2, 2 * MAX_UNJOINED):
        rings.worker(number, sample=1)
    rings.feed.read(0)
    rings.core(2)
    assert rings.feed.read(2000) == 0
