"""What comes back from vLLM: one task takes every step of the engine and gives each sequence its part.

It stands where AsyncLLM's own output task would (`AsyncLLM.output_handler`). Nearly all outputs are the middle of an
answer, ids and at most their log probabilities: these go straight to their `Sink`. All others, the first, the last and
what has events, go vLLM's way through its OutputProcessor, which does the books of a request and calls `Sink.put`.
"""

import asyncio
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import Counter
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.stats import IterationStats

from server.engine.steps import StepFeed
from server.engine.vllm_params import logprob_rows
from server.engine.vllm_sink import Arrival, Sink
from server.request import TokenDelta

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import RequestState

MOST_STEPS = 256  # taken at once: after that the loop gets its turn
TURN_NS = 2_000_000  # our work between two turns of the loop, and
TURN_STREAMS = 64  # as many streams

LATE_STEPS = Counter(
    "streamgauge_late_steps", "Engine steps that lay waiting for the event loop and merged with others."
)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Arrived:
    """The steps that had come when the loop got to them. `middles` are merged by sequence."""

    steps: list[tuple[EngineCoreOutputs, IterationStats | None]] = field(default_factory=list)
    middles: dict[Sink, TokenDelta] = field(default_factory=dict)
    error: Exception | None = None


class Pump:
    """Steps that pile up while the loop is busy merge: a sequence gets one delta, all ids with the oldest stamps."""

    def __init__(self) -> None:
        self.latest = Arrival()
        self._first = 0  # where the next turn starts among the streams: nobody is always last

    def start(self, llm: "AsyncLLM", steps: StepFeed | None) -> None:
        """AsyncLLM owns the task from here on: it asks whether that still runs, and ends it in `shutdown`."""
        llm.output_handler = asyncio.create_task(self._run(llm, steps), name="engine-outputs")

    async def _run(self, llm: "AsyncLLM", steps: StepFeed | None) -> None:
        try:
            while True:
                arrived = await self._next(llm, steps)
                await self._push(arrived.middles)
                self._record(llm, arrived)
                if arrived.error is not None:
                    raise arrived.error
        except EngineDeadError as error:
            _log.warning("engine_died")
            llm.output_processor.propagate_error(error)
        except Exception as error:
            _log.exception("engine_outputs_failed")
            llm.output_processor.propagate_error(error)

    async def _next(self, llm: "AsyncLLM", feed: StepFeed | None) -> _Arrived:
        """Waits for a step; takes those behind it along. What they began and ended has been told when this returns."""
        client = llm.engine_core
        arrived = _Arrived()
        outputs = await client.get_output_async()
        self.latest.received_ns = monotonic_ns()
        self._take(llm, outputs, feed, arrived)
        waiting: asyncio.Queue[Any] = client.outputs_queue
        while not waiting.empty() and len(arrived.steps) < MOST_STEPS:
            try:
                outputs = await client.get_output_async()
            except Exception as error:  # the steps before it have come all the same
                arrived.error = error
                break
            LATE_STEPS.inc()
            self._take(llm, outputs, feed, arrived)
        return arrived

    def _take(self, llm: "AsyncLLM", outputs: EngineCoreOutputs, feed: StepFeed | None, arrived: _Arrived) -> None:
        sampled_ns = int(outputs.timestamp * 1e9)
        self.latest.sample_ns = 0 if feed is None else feed.read(sampled_ns)
        stats = IterationStats() if llm.log_stats and outputs.outputs else None  # type: ignore[no-untyped-call]
        states, mergeable = llm.output_processor.request_states, llm.output_processor.stream_interval == 1
        others: list[EngineCoreOutput] = []
        for output in outputs.outputs:
            state = states.get(output.request_id)
            if state is None:  # aborted
                continue
            sink: object = state.queue
            if isinstance(sink, Sink):
                if mergeable and _is_middle(output, state):
                    _book(output, state, outputs.timestamp, stats)
                    self._merge(sink, output, sampled_ns, arrived.middles)
                    continue
                if (earlier := arrived.middles.pop(sink, None)) is not None:
                    sink.take(earlier)
            others.append(output)
        if others:
            llm.output_processor.process_outputs(others, outputs.timestamp, stats)
        arrived.steps.append((outputs, stats))

    def _merge(self, sink: Sink, output: EngineCoreOutput, sampled_ns: int, middles: dict[Sink, TokenDelta]) -> None:
        latest, rows = self.latest, None
        if output.new_logprobs is not None:
            rows = logprob_rows(output.new_logprobs, sink.request.params.logprobs)
        delta = middles.get(sink)
        if delta is None:
            middles[sink] = TokenDelta(
                output.new_token_ids,
                sampled_ns=sampled_ns,
                received_ns=latest.received_ns,
                sample_ns=latest.sample_ns,
                logprobs=rows,
            )
            return
        delta.token_ids = [*delta.token_ids, *output.new_token_ids]
        delta.sample_ns += latest.sample_ns
        if rows is not None:
            delta.logprobs = [*(delta.logprobs or ()), *rows]

    async def _push(self, middles: dict[Sink, TokenDelta]) -> None:
        """To every stream, with a turn for the loop between so many of them."""
        if not middles:
            return
        sinks = list(middles)
        self._first = (self._first + 1) % len(sinks)
        until = monotonic_ns() + TURN_NS
        for number, sink in enumerate(sinks[self._first :] + sinks[: self._first], start=1):
            sink.take(middles[sink])
            if number % TURN_STREAMS == 0 or monotonic_ns() > until:
                await asyncio.sleep(0)
                until = monotonic_ns() + TURN_NS

    def _record(self, llm: "AsyncLLM", arrived: _Arrived) -> None:
        """vLLM's own series, as its output task keeps them."""
        for outputs, stats in arrived.steps:
            llm.output_processor.update_scheduler_stats(outputs.scheduler_stats)
            if llm.logger_manager is not None:
                llm.logger_manager.record(
                    engine_idx=outputs.engine_index,
                    scheduler_stats=outputs.scheduler_stats,
                    iteration_stats=stats,
                    mm_cache_stats=llm.renderer.stat_mm_cache(),
                )


def _is_middle(output: EngineCoreOutput, state: "RequestState") -> bool:
    return not state.is_prefilling and output.finish_reason is None and output.events is None


def _book(output: EngineCoreOutput, state: "RequestState", stamp: float, stats: IterationStats | None) -> None:
    """What IterationStats.update_from_output does for the middle of an answer."""
    if stats is None or state.stats is None:
        return
    count = len(output.new_token_ids)
    stats.num_generation_tokens += count
    stats.inter_token_latencies_iter.append(stamp - state.stats.last_token_ts)
    state.stats.num_generation_tokens += count
    state.stats.last_token_ts = stamp
