"""What the step probe saw, read when a step's outputs arrive."""

from collections.abc import Callable
from pathlib import Path

from sampling.probe.records import CORE_RING, NO_WORKER, WORKER_RING, CoreRecord, Step, WorkerRecord, joined
from sampling.probe.ring import RingReader

MAX_UNJOINED = 64  # asynchronous scheduling has two steps under way

OnEngineStep = Callable[[Step], None]
"""Told of each step of the engine, in order. Must not raise."""


class StepFeed:
    """Makes the rings, in a folder that the engine's processes look into when they start."""

    def __init__(self, folder: Path, on_step: OnEngineStep) -> None:
        self._on_step = on_step
        self._core = RingReader(folder / CORE_RING, len(CoreRecord._fields))
        self._worker = RingReader(folder / WORKER_RING, len(WorkerRecord._fields))
        self._workers: dict[int, WorkerRecord] = {}

    def read(self, stamp: int) -> int:
        """Take in what is new; returns the sampling time of the step whose outputs carry `stamp`, 0 if not known. ns"""
        for values in self._worker.read():
            worker = WorkerRecord(*values)
            self._workers[worker.step] = worker
        found = 0
        for values in self._core.read():
            core = CoreRecord(*values)
            step = joined(core, self._workers.pop(core.step, NO_WORKER))
            self._on_step(step)
            if step.stamp == stamp:
                found = step.sample
        if len(self._workers) > MAX_UNJOINED:  # their other halves were lost
            self._workers.clear()
        return found
