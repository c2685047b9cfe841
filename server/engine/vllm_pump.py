"""What comes back from vLLM: one task takes every step of the engine and gives each sequence its part.

It stands where AsyncLLM's own output task would (`AsyncLLM.output_handler`). Nearly all outputs are the middle of an
answer, ids and at most their log probabilities: these go straight to their `Sink`. All others, the first, the last and
what has events, go vLLM's way through its OutputProcessor, which does the books of a request and calls `Sink.put`.
"""

import asyncio
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import Counter
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.stats import IterationStats

from server.engine.steps import StepFeed
from server.engine.vllm_params import logprob_rows
from server.engine.vllm_series import SeriesKeeper
from server.engine.vllm_sink import Arrival, Sink
from server.request import TokenDelta

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import RequestState

MOST_STEPS = 32  # taken at once, while the loop has to wait
TURN_NS = 2_000_000  # our work between two turns of the loop, and
TURN_STREAMS = 64  # as many streams

LATE_STEPS = Counter(
    "streamgauge_late_steps", "Engine steps that lay waiting for the event loop and merged with others."
)

_log = structlog.get_logger(__name__)


class Pump:
    """Steps that pile up while the loop is busy merge: a sequence gets one delta, all ids with the oldest stamps."""

    def __init__(self, llm: "AsyncLLM", latest: Arrival, feed: StepFeed | None) -> None:
        self._llm = llm
        self._latest = latest
        self._feed = feed
        self._series = SeriesKeeper(llm)
        self._merges = llm.output_processor.stream_interval == 1  # else vLLM gathers tokens itself
        self._middles: dict[Sink, TokenDelta] = {}  # what is taken and not pushed yet
        self._first = 0  # where the next turn starts among the streams: nobody is always last

    def start(self) -> None:
        """AsyncLLM asks from here on whether the task still runs."""
        self._llm.output_handler = asyncio.create_task(self._run(), name="engine-outputs")

    async def close(self) -> None:
        task = self._llm.output_handler
        if task is not None:
            task.cancel()
            await asyncio.wait((task,), timeout=1)

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._take_what_has_come()
                finally:
                    await self._push()
        except EngineDeadError as error:
            _log.warning("engine_died")
            self._llm.output_processor.propagate_error(error)
        except Exception as error:
            _log.exception("engine_outputs_failed")
            self._llm.output_processor.propagate_error(error)
        finally:
            self._series.flush()

    async def _take_what_has_come(self) -> None:
        """Waits for a step and takes those behind it along."""
        client = self._llm.engine_core
        outputs = await client.get_output_async()
        self._latest.received_ns = monotonic_ns()
        await self._take(outputs)
        waiting: asyncio.Queue[Any] = client.outputs_queue
        # No more than wait now: others come meanwhile, and an engine as fast as this loop would never let it push.
        for _ in range(min(waiting.qsize(), MOST_STEPS)):
            await self._take(await client.get_output_async())
            LATE_STEPS.inc()

    async def _take(self, outputs: EngineCoreOutputs) -> None:
        """Keeps the middles for `_push`; what begins or ends has been told when this returns."""
        sampled_ns = int(outputs.timestamp * 1e9)
        self._latest.sample_ns = 0 if self._feed is None else self._feed.read(sampled_ns)
        processor = self._llm.output_processor
        stats = IterationStats() if self._llm.log_stats and outputs.outputs else None  # type: ignore[no-untyped-call]
        others: list[EngineCoreOutput] = []
        for output in outputs.outputs:
            state = processor.request_states.get(output.request_id)
            if state is None:  # aborted
                continue
            sink: object = state.queue
            if isinstance(sink, Sink):
                if self._merges and _is_middle(output, state):
                    _book(output, state, outputs.timestamp, stats)
                    self._keep(sink, output, sampled_ns)
                    continue
                if (earlier := self._middles.pop(sink, None)) is not None:
                    sink.take(earlier)
            others.append(output)
        for start in range(0, len(others), TURN_STREAMS):
            if start:
                await asyncio.sleep(0)
            processor.process_outputs(others[start : start + TURN_STREAMS], outputs.timestamp, stats)
        self._series.add(outputs, stats)

    def _keep(self, sink: Sink, output: EngineCoreOutput, sampled_ns: int) -> None:
        latest, rows = self._latest, None
        if output.new_logprobs is not None:
            rows = logprob_rows(output.new_logprobs, sink.request.params.logprobs)
        delta = self._middles.get(sink)
        if delta is None:
            self._middles[sink] = TokenDelta(
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

    async def _push(self) -> None:
        """To every stream, with a turn for the loop between so many of them."""
        if not self._middles:
            return
        middles, self._middles = self._middles, {}
        sinks = list(middles)
        self._first = (self._first + 1) % len(sinks)
        until = monotonic_ns() + TURN_NS
        for number, sink in enumerate(sinks[self._first :] + sinks[: self._first], start=1):
            sink.take(middles[sink])
            if number % TURN_STREAMS == 0 or monotonic_ns() > until:
                await asyncio.sleep(0)
                until = monotonic_ns() + TURN_NS


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
