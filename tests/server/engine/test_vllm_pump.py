"""Steps of the engine, through the pump and through vLLM's own OutputProcessor alone: both must tell the same."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest
from vllm.v1.engine import FinishReason as VllmFinishReason
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.metrics.stats import IterationStats
from vllm.v1.outputs import LogprobsLists

from sampling.params import SamplingParams
from server.engine.vllm_params import vllm_params
from server.engine.vllm_pump import LATE_STEPS, TURN_STREAMS, Pump
from server.engine.vllm_sink import Arrival, Sink
from server.errors import EngineDied, EngineFailed
from server.request import EngineRequest, TokenDelta

DEADLINE_S = 20.0
STEP_S = 0.5


class FakeCore:
    """The engine's client as the pump uses it: steps that have come wait in `outputs_queue`."""

    def __init__(self) -> None:
        self.outputs_queue: asyncio.Queue[EngineCoreOutputs | Exception] = asyncio.Queue()

    async def get_output_async(self) -> EngineCoreOutputs:
        found = await self.outputs_queue.get()
        if isinstance(found, Exception):
            raise found
        return found


@dataclass
class Recorded:
    """In the place of vLLM's loggers: what they would be told."""

    tokens: int = 0
    first: int = 0
    gaps: list[float] = field(default_factory=list)
    finished: list[tuple[str, int, float]] = field(default_factory=list)

    def record(self, *, iteration_stats: IterationStats | None, **_: Any) -> None:
        if iteration_stats is None:
            return
        self.tokens += iteration_stats.num_generation_tokens
        self.first += len(iteration_stats.time_to_first_tokens_iter)
        self.gaps += iteration_stats.inter_token_latencies_iter
        self.finished += [
            (str(one.finish_reason), one.num_generation_tokens, round(one.decode_time, 6))
            for one in iteration_stats.finished_requests
        ]


class Stand:
    """An AsyncLLM of which only the outputs are there, with real books."""

    def __init__(self, stream_interval: int = 1) -> None:
        self.core = FakeCore()
        self.recorded = Recorded()
        self.llm: Any = SimpleNamespace(
            engine_core=self.core,
            output_processor=OutputProcessor(None, log_stats=True, stream_interval=stream_interval),
            log_stats=True,
            logger_manager=self.recorded,
            renderer=SimpleNamespace(stat_mm_cache=lambda: None),
            output_handler=None,
        )
        self.latest = Arrival()
        self.told: dict[str, list[TokenDelta]] = {}
        self.sinks: dict[str, Sink] = {}
        self.aborted: list[str] = []

    def add(self, name: str, on_step: Any = None, **params: Any) -> Sink:
        wanted = SamplingParams(max_tokens=100, **params)
        deltas = self.told.setdefault(name, [])
        latest = self.latest
        sink = Sink(EngineRequest(name, [1, 2], wanted), on_step or deltas.append, lambda: None, self._abort, latest)
        request = EngineCoreRequest(name, [1, 2], None, vllm_params(wanted), None, 0.0, None, None, None)
        request.external_req_id = name
        self.llm.output_processor.add_request(request, None, None, 0, sink)
        self.sinks[name] = sink
        return sink

    def _abort(self, sink: Sink) -> None:
        self.aborted.append(sink.request_id)
        self.llm.output_processor.abort_requests([sink.request_id], internal=True)

    async def through_the_pump(self, steps: Sequence[Sequence[EngineCoreOutputs | Exception]]) -> None:
        """Each group of steps has come before the loop gets to it."""
        pump = Pump(self.llm, self.latest, None)
        pump.start()
        for group in steps:
            for step in group:
                self.core.outputs_queue.put_nowait(step)
            async with asyncio.timeout(DEADLINE_S):
                while not self.core.outputs_queue.empty():  # noqa: ASYNC110
                    await asyncio.sleep(0)
                for _ in range(5):
                    await asyncio.sleep(0)
        await pump.close()
        assert self.llm.output_handler.done()

    def through_vllm(self, steps: Sequence[Sequence[EngineCoreOutputs]]) -> None:
        for step in (step for group in steps for step in group):
            stats = IterationStats()  # type: ignore[no-untyped-call]
            self.llm.output_processor.process_outputs(step.outputs, step.timestamp, stats)
            self.recorded.record(iteration_stats=stats)

    def answer(self, name: str) -> tuple[list[int], list[Any], Any]:
        deltas = self.told[name]
        ids = [token_id for delta in deltas for token_id in delta.token_ids]
        logprobs = [entry for delta in deltas for entry in delta.logprobs or ()]
        return ids, logprobs, [delta.finish_reason for delta in deltas if delta.finish_reason is not None]


def output(
    name: str, *ids: int, finish: VllmFinishReason | None = None, rows: int = 0, **more: Any
) -> EngineCoreOutput:
    """With `rows` log probabilities per token, the sampled one's first."""
    lists = None
    if rows:
        token_ids = np.array([[token_id, *range(1000, 999 + rows)] for token_id in ids])
        values = np.array([[-0.5 - k / 8 for k in range(rows)] for _ in ids], dtype=np.float32)
        lists = LogprobsLists(token_ids, values, np.array([3] * len(ids)))
    return EngineCoreOutput(name, list(ids), new_logprobs=lists, finish_reason=finish, **more)


def step(number: int, *outputs: EngineCoreOutput) -> EngineCoreOutputs:
    return EngineCoreOutputs(outputs=list(outputs), timestamp=STEP_S * (number + 1))


def begun(name: str) -> dict[str, Any]:
    return {"events": [EngineCoreEvent(EngineCoreEventType.SCHEDULED, 0.25)]}


async def test_each_step_is_told_when_it_comes() -> None:
    stand = Stand()
    stand.add("a")
    steps = [step(0, output("a", 5, **begun("a"))), step(1, output("a", 6)), step(2, output("a", 7))]
    await stand.through_the_pump([[one] for one in steps])
    assert [list(delta.token_ids) for delta in stand.told["a"]] == [[5], [6], [7]]
    assert [delta.sampled_ns for delta in stand.told["a"]] == [500_000_000, 1_000_000_000, 1_500_000_000]
    assert stand.told["a"][0].scheduled_ns == 250_000_000
    received = [delta.received_ns for delta in stand.told["a"]]
    assert received == sorted(received)
    assert received[0] > 0


async def test_steps_that_pile_up_merge_by_sequence_with_the_oldest_stamps() -> None:
    stand = Stand()
    stand.add("a")
    stand.add("b")
    late = LATE_STEPS._value.get()
    first = step(0, output("a", 5, **begun("a")), output("b", 50, **begun("b")))
    piled = [step(n, output("a", 5 + n), output("b", 50 + n)) for n in (1, 2, 3)]
    await stand.through_the_pump([[first], piled])
    assert [list(delta.token_ids) for delta in stand.told["a"]] == [[5], [6, 7, 8]]
    assert [list(delta.token_ids) for delta in stand.told["b"]] == [[50], [51, 52, 53]]
    assert stand.told["a"][1].sampled_ns == 1_000_000_000
    assert LATE_STEPS._value.get() - late == 2


async def test_an_end_among_piled_up_steps_comes_after_what_was_said_before_it() -> None:
    stand = Stand()
    stand.add("a")
    piled = [
        step(0, output("a", 5, **begun("a"))),
        step(1, output("a", 6)),
        step(2, output("a", 7)),
        step(3, output("a", 8, finish=VllmFinishReason.LENGTH)),
    ]
    await stand.through_the_pump([piled])
    assert [list(delta.token_ids) for delta in stand.told["a"]] == [[5], [6, 7], [8]]
    assert not stand.llm.output_processor.request_states


async def test_what_follows_an_abort_is_nobodys() -> None:
    stand = Stand()
    sink = stand.add("a")
    await stand.through_the_pump([[step(0, output("a", 5, **begun("a")))]])
    sink.abort()
    await stand.through_the_pump([[step(1, output("a", 6)), step(2, output("a", 7))]])
    assert stand.answer("a")[0] == [5]
    assert stand.aborted == ["a"]


async def test_a_stream_that_fails_ends_alone() -> None:
    stand = Stand()

    def fails(delta: TokenDelta) -> None:
        if 6 in delta.token_ids:
            raise RuntimeError("this one cannot")

    stand.add("bad", fails)
    stand.add("good")
    first = step(0, output("bad", 5, **begun("bad")), output("good", 5, **begun("good")))
    await stand.through_the_pump(
        [[first], [step(1, output("bad", 6), output("good", 6))], [step(2, output("good", 7))]]
    )
    assert stand.answer("good")[0] == [5, 6, 7]
    assert stand.aborted == ["bad"]


@pytest.mark.parametrize(("error", "ours"), [(EngineDeadError(), EngineDied), (RuntimeError("broken"), EngineFailed)])
async def test_what_came_before_the_engines_end_is_told_before_it(error: Exception, ours: type[Exception]) -> None:
    stand = Stand()
    stand.add("a")
    await stand.through_the_pump([[step(0, output("a", 5, **begun("a"))), step(1, output("a", 6)), error]])
    *said, last = stand.told["a"]
    assert [list(delta.token_ids) for delta in said] == [[5], [6]]
    assert isinstance(last.error, ours)


async def test_many_streams_leave_the_loop_its_turn_and_nobody_is_always_first() -> None:
    stand = Stand()
    order: list[tuple[str, int]] = []

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            order.append(("loop", 0))

    def noting(name: str) -> Any:
        return lambda delta: order.append((name, delta.token_ids[0]))

    names = [f"s{k}" for k in range(2 * TURN_STREAMS + 1)]
    for name in names:
        stand.add(name, noting(name))
    task = asyncio.create_task(others())
    first = step(0, *[output(name, 5, **begun(name)) for name in names])
    going_on = [step(number, *[output(name, 5 + number) for name in names]) for number in (1, 2)]
    await stand.through_the_pump([[first], *[[one] for one in going_on]])
    task.cancel()
    leaders = []
    for token_id in (6, 7):
        told = [entry for entry in order if entry[1] == token_id]
        assert sorted(name for name, _ in told) == sorted(names)
        between = order[order.index(told[0]) : order.index(told[-1])]
        assert between.count(("loop", 0)) >= 2
        leaders.append(told[0][0])
    assert len(set(leaders)) == 2


async def test_an_engine_that_gathers_tokens_itself_goes_vllms_way() -> None:
    stand = Stand(stream_interval=3)
    stand.add("a")
    steps = [step(0, output("a", 5, **begun("a"))), *[step(n, output("a", 5 + n)) for n in range(1, 7)]]
    await stand.through_the_pump([[one] for one in steps])
    assert [list(delta.token_ids) for delta in stand.told["a"]] == [[5], [6, 7, 8], [9, 10, 11]]


LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(LENGTHS, st.lists(st.integers(1, 4), min_size=1, max_size=12), st.sampled_from([None, 0, 2]), st.data())
def test_however_steps_pile_up_the_answer_and_vllms_series_are_the_same(
    lengths: list[int], groups: list[int], logprobs: int | None, data: st.DataObject
) -> None:
    names = [f"r{k}" for k in range(len(lengths))]
    rows = 0 if logprobs is None else 4  # as wide as the widest of the batch
    steps = []
    for number in range(max(lengths)):
        outputs = []
        for name, length in zip(names, lengths, strict=True):
            if number < length:
                ids = data.draw(st.lists(st.integers(3, 900), min_size=1, max_size=3))
                finish = VllmFinishReason.LENGTH if number == length - 1 else None
                more = begun(name) if number == 0 or (data.draw(st.booleans()) and number == 2) else {}
                outputs.append(output(name, *ids, finish=finish, rows=rows, **more))
        steps.append(step(number, *outputs))
    grouped, rest = [], list(steps)
    for size in groups * len(steps):
        if rest:
            grouped.append(rest[:size])
            rest = rest[size:]
    ours, theirs = Stand(), Stand()
    for name in names:
        for stand in (ours, theirs):
            stand.add(name, logprobs=logprobs)
    theirs.through_vllm(grouped)
    asyncio.run(ours.through_the_pump(grouped))
    for name in names:
        assert ours.answer(name) == theirs.answer(name)
    assert (ours.recorded.tokens, ours.recorded.first) == (theirs.recorded.tokens, theirs.recorded.first)
    assert sorted(ours.recorded.gaps) == pytest.approx(sorted(theirs.recorded.gaps))
    assert sorted(ours.recorded.finished) == sorted(theirs.recorded.finished)
