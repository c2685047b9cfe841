"""The scheduling loop is timed, and runs as it did."""

from collections.abc import Callable
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from sampling.probe.core import CoreProbe, install
from sampling.probe.records import NO_WORKER, STEP, CoreRecord, joined
from sampling.probe.ring import RingReader, RingWriter

BRIEF = 0.002
NS = 10**9


class Output:
    """As much of a SchedulerOutput as is looked at."""

    def __init__(self, new: dict[str, int], cached: dict[str, tuple[int, int]]) -> None:
        self.scheduled_new_reqs = [SimpleNamespace(req_id=name) for name in new]
        self.scheduled_cached_reqs = SimpleNamespace(
            req_ids=list(cached), num_output_tokens=[done for _, done in cached.values()]
        )
        self.num_scheduled_tokens = {**new, **{name: tokens for name, (tokens, _) in cached.items()}}
        self.total_num_scheduled_tokens = sum(self.num_scheduled_tokens.values())


class Engine:
    """Classes to wrap, an object of each, and the ring that they write."""

    def __init__(self, folder: Path) -> None:
        self.outputs: list[Output] = []
        self.messages: list[str] = []
        self.work = False
        engine = self

        class Scheduler:
            running: tuple[int, ...] = (1, 2, 3)
            waiting: tuple[int, ...] = (4,)
            max_num_running_reqs = 8
            kv_cache_manager: Any = SimpleNamespace(usage=0.5)

            def schedule(self, throttle_prefills: bool = False) -> Output:
                sleep(BRIEF)
                return engine.outputs.pop(0)

            def get_grammar_bitmask(self, output: Output) -> str:
                sleep(BRIEF)
                return "masks"

            def update_from_output(self, output: Output, result: str) -> dict[int, Any]:
                sleep(BRIEF)
                return {0: SimpleNamespace(timestamp=123.456)}

        class Loop:
            def has_work(self) -> bool:
                return engine.work

            def _process_input_queue(self) -> None:
                if not engine.work:
                    sleep(5 * BRIEF)
                while engine.messages:
                    self._handle_client_request(engine.messages.pop())

            def _handle_client_request(self, message: str) -> None:
                sleep(BRIEF)
                engine.work = True

        self.reader = RingReader(folder / "core", len(CoreRecord._fields))
        self.probe = CoreProbe(RingWriter(folder / "core", len(CoreRecord._fields)))
        install(self.probe, Scheduler, Loop)
        self.scheduler, self.loop = Scheduler(), Loop()

    def step(self, output: Output, meanwhile: Callable[[], None] = lambda: None) -> dict[int, Any]:
        self.outputs.append(output)
        assert self.scheduler.schedule(False) is output
        assert self.scheduler.get_grammar_bitmask(output) == "masks"
        meanwhile()
        return self.scheduler.update_from_output(output, "result")

    def records(self) -> list[CoreRecord]:
        return [CoreRecord(*values) for values in self.reader.read()]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_a_step_has_its_times_and_its_batch(engine: Engine) -> None:
    output = Output(new={"a": 100}, cached={"b": (40, 0), "c": (1, 5), "d": (3, 1)})
    engine.step(output, lambda: sleep(3 * BRIEF))
    (record,) = engine.records()
    assert getattr(output, STEP) == record.step == 1
    assert record.stamp == int(123.456 * 1e9)
    assert (record.prefill_tokens, record.decode_tokens) == (140, 4)
    assert (record.running, record.room, record.waiting, record.kv_usage_ppm) == (3, 8, 1, 500_000)
    assert record.schedule >= 2 * BRIEF * NS  # the masks too
    assert record.execute >= 3 * BRIEF * NS
    assert record.update >= BRIEF * NS
    assert record.idle == record.intake == record.overlapped == 0
    assert record.schedule + record.execute + record.update <= record.wall


def test_waiting_for_a_request_is_idle_and_taking_it_in_is_not(engine: Engine) -> None:
    engine.messages = ["add", "add"]
    engine.loop._process_input_queue()
    engine.step(Output({"a": 1}, {}))
    (record,) = engine.records()
    assert record.idle >= 5 * BRIEF * NS
    assert record.intake >= 2 * BRIEF * NS
    step = joined(record, NO_WORKER)
    assert step.idle + step.rpc + step.overhead + step.schedule + step.update == step.wall


def test_the_time_before_the_loop_began_is_nobodys(engine: Engine) -> None:
    loading = 500 * BRIEF
    sleep(loading)
    engine.loop._process_input_queue()
    engine.step(Output({"a": 1}, {}))
    (record,) = engine.records()
    assert 5 * BRIEF * NS <= record.idle < record.wall < loading * NS


def test_a_look_for_messages_with_work_at_hand_is_not_idle(engine: Engine) -> None:
    engine.work, engine.messages = True, ["abort"]
    engine.loop._process_input_queue()
    engine.step(Output({"a": 1}, {}))
    (record,) = engine.records()
    assert record.idle == 0
    assert record.intake >= BRIEF * NS


def test_idle_and_intake_count_for_one_step_only(engine: Engine) -> None:
    engine.loop._process_input_queue()
    engine.step(Output({"a": 1}, {}))
    engine.step(Output({}, {"a": (1, 1)}))
    first, second = engine.records()
    assert first.idle > 0
    assert (second.step, second.idle, second.intake) == (2, 0, 0)
    assert second.wall == second.ended - first.ended


def test_a_schedule_without_tokens_is_no_step(engine: Engine) -> None:
    engine.step(Output({}, {}))
    assert engine.records() == []


def test_steps_under_way_at_the_same_time_are_marked(engine: Engine) -> None:
    first, second = Output({"a": 1}, {}), Output({}, {"a": (1, 1)})
    engine.outputs = [first, second]
    engine.scheduler.schedule()
    engine.scheduler.schedule()
    engine.scheduler.update_from_output(first, "")
    engine.scheduler.update_from_output(second, "")
    assert [(record.step, record.overlapped, record.execute) for record in engine.records()] == [(1, 1, 0), (2, 1, 0)]


def test_a_probe_that_fails_turns_itself_off_and_nothing_else(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.scheduler.kv_cache_manager = None
    assert engine.step(Output({"a": 1}, {})) != {}
    assert engine.probe.off
    assert "off from here on" in caplog.text
    engine.scheduler.kv_cache_manager = SimpleNamespace(usage=0.0)
    assert engine.step(Output({"a": 1}, {})) != {}
    assert engine.records() == []
    assert len(caplog.records) == 1
