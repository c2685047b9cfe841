"""The model runner's moments become parts, on a host's clock or from a device's events."""

from pathlib import Path
from time import monotonic_ns, sleep
from types import SimpleNamespace
from typing import Any

import pytest

from sampling.probe.marks import DeviceTimer, HostTimer, Place, Timer
from sampling.probe.records import STEP, WorkerRecord
from sampling.probe.ring import RingReader, RingWriter
from sampling.probe.worker import WorkerProbe

BRIEF = 0.002
NS = 10**9


class Device:
    """A stream that runs behind the host: events get their time in `order`, when it comes to them."""

    def __init__(self, times_ms: list[float]) -> None:
        self.times_ms = times_ms
        self.made = 0

    def event(self) -> "Event":
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at: float | None = None

    def record(self) -> None:
        self.at = self.device.times_ms.pop(0)

    def elapsed_time(self, end: "Event") -> float:
        assert self.at is not None
        assert end.at is not None
        return end.at - self.at


def probe_on(folder: Path, timer: Timer) -> tuple[WorkerProbe, RingReader]:
    fields = len(WorkerRecord._fields)
    reader = RingReader(folder / "worker", fields)
    return WorkerProbe(RingWriter(folder / "worker", fields), timer), reader


def records(reader: RingReader) -> list[WorkerRecord]:
    return [WorkerRecord(*values) for values in reader.read()]


def v1_step(probe: WorkerProbe, number: int, result: Any, brief: float = 0.0) -> None:
    probe.begin(number)
    sleep(brief)
    probe.mark(Place.FORWARD)
    sleep(2 * brief)
    probe.mark(Place.FORWARD_END)
    probe.executed(over=False)
    sleep(brief)  # the way to the scheduler and back: nobody's here
    began = monotonic_ns()
    probe.mark(Place.SAMPLE)
    sleep(3 * brief)
    probe.mark(Place.SAMPLE_END)
    sleep(brief)
    probe.sampled(result, began)


def test_on_a_host_each_part_has_what_passed_in_it(tmp_path: Path) -> None:
    probe, reader = probe_on(tmp_path, HostTimer())
    v1_step(probe, 5, SimpleNamespace(), BRIEF)
    (record,) = records(reader)
    assert record.step == 5
    assert record.prepare >= BRIEF * NS
    assert record.forward >= 2 * BRIEF * NS
    assert record.sample >= 3 * BRIEF * NS
    assert record.finalize >= BRIEF * NS
    assert record.device_gap == 0


def test_marks_between_steps_are_nobodys(tmp_path: Path) -> None:
    probe, reader = probe_on(tmp_path, HostTimer())
    for place in Place:  # a warm-up run
        probe.mark(place)
    probe.sampled(SimpleNamespace(), 0)
    assert records(reader) == []


def test_a_step_that_samples_nothing_leaves_no_record(tmp_path: Path) -> None:
    probe, reader = probe_on(tmp_path, HostTimer())
    probe.begin(1)
    probe.executed(over=True)
    probe.sampled(SimpleNamespace(), 0)
    assert records(reader) == []
    v1_step(probe, 2, SimpleNamespace())
    assert [record.step for record in records(reader)] == [2]


def test_a_devices_parts_are_the_times_between_its_events(tmp_path: Path) -> None:
    device = Device([10.0, 14.0, 15.0, 16.5])
    probe, reader = probe_on(tmp_path, DeviceTimer(device.event))
    v1_step(probe, 1, SimpleNamespace())
    (record,) = records(reader)
    assert (record.forward, record.sample) == (4_000_000, 1_500_000)
    assert record.finalize == 0  # the host was done long before the device


def test_logits_that_are_computed_with_the_sampling_belong_to_the_forward(tmp_path: Path) -> None:
    device = Device([10.0, 14.0, 14.5, 15.0, 17.0])
    probe, reader = probe_on(tmp_path, DeviceTimer(device.event))
    probe.begin(1)
    for place in (Place.FORWARD, Place.FORWARD_END):
        probe.mark(place)
    probe.executed(over=False)
    for place in (Place.LOGITS, Place.SAMPLE, Place.SAMPLE_END):
        probe.mark(place)
    probe.sampled(SimpleNamespace(), 0)
    (record,) = records(reader)
    assert (record.forward, record.sample) == (4_500_000, 2_000_000)


class Promise:
    """What asynchronous scheduling returns: the ids come later."""

    def get_output(self) -> str:
        return "ids"


def test_a_promised_result_is_read_when_it_is_kept_and_the_devices_gap_lies_between(tmp_path: Path) -> None:
    device = Device([0.0, 4.0, 4.0, 5.0, 5.25, 9.0, 9.0, 10.0, 10.0, 14.0, 14.0, 15.0])
    probe, reader = probe_on(tmp_path, DeviceTimer(device.event))
    promises = [Promise(), Promise(), Promise()]
    v1_step(probe, 1, promises[0])
    v1_step(probe, 2, promises[1])  # under way before the first one's ids are there
    assert records(reader) == []
    probe.finish(getattr(promises[0], STEP))
    v1_step(probe, 3, promises[2])
    for promise in promises[1:]:
        probe.finish(getattr(promise, STEP))
    assert [(record.step, record.device_gap) for record in records(reader)] == [(1, 0), (2, 250_000), (3, 0)]


def test_events_are_made_once_and_used_again(tmp_path: Path) -> None:
    device = Device([float(number) for number in range(400)])
    probe, reader = probe_on(tmp_path, DeviceTimer(device.event))
    for number in range(100):
        v1_step(probe, number + 1, SimpleNamespace())
    assert len(records(reader)) == 100
    assert device.made == 2 * len(Place)  # this step's, and the one's before


def test_a_probe_that_fails_turns_itself_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = Device([])
    probe, reader = probe_on(tmp_path, DeviceTimer(device.event))
    v1_step(probe, 1, SimpleNamespace())
    assert probe.off
    assert records(reader) == []
    assert len(caplog.records) == 1
