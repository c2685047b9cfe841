"""Sequences on their way through vLLM: what carries each there, and what takes its steps back.

`Sender` is the one task that talks to the engine; a `Sink` per sequence takes what AsyncLLM's output task brings. What
this leans on below vLLM's public API is held by tests/integration/test_vllm_contract.py.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic_ns
from typing import Any

import structlog
from vllm.exceptions import GracefulHTTPError, VLLMClientError
from vllm.inputs.engine import tokens_input
from vllm.outputs import RequestOutput
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from server.engine.guard import push, release
from server.engine.protocol import OnReleased, OnStep
from server.engine.steps import StepFeed
from server.engine.vllm_params import SORT_FREE_TOP_P, prompt_logprobs, sample_logprobs, vllm_params
from server.errors import EngineDied, EngineFailed, InvalidRequest, Overloaded, ServeError
from server.request import EngineRequest, FinishReason, TokenDelta

GRAMMAR_DEADLINE_S = 20.0

_log = structlog.get_logger(__name__)


class Sink:
    """Receives one request's outputs in vLLM's output task, in place of its RequestOutputCollector; is its Handle."""

    def __init__(
        self,
        request: EngineRequest,
        on_step: OnStep,
        on_released: OnReleased,
        sender: "Sender",
        clock: "StepClock",
    ) -> None:
        self.request = request
        self.request_id = request.id  # becomes vLLM's internal id once added
        self.prepared: EngineCoreRequest | None = None
        self._running = False
        self.ended = False
        self.aborted = False
        self._on_step = on_step
        self._on_released: OnReleased | None = on_released
        self._sender = sender
        self._clock = clock

    def abort(self) -> None:
        if not self.ended:
            self.ended = self.aborted = True
            self._sender.abort(self)

    def put(self, output: RequestOutput | Exception) -> None:
        """vLLM's side: called for each step of this request, and once with an exception when the engine dies."""
        if self.ended:
            return
        delta = self._failure(output) if isinstance(output, Exception) else self._delta(output)
        if delta.error is not None or delta.finish_reason is not None:
            self.ended = True
        push(self._on_step, delta, self.abort)
        if self.ended and not self.aborted:
            self.release()

    def release(self) -> None:
        """The engine has nothing of the request any more; once."""
        on_released, self._on_released = self._on_released, None
        if on_released is not None:
            release(on_released)

    def close(self) -> None:
        """vLLM's side: nothing of ours to release."""

    def fail(self, error: ServeError) -> None:
        """The request never reached the engine."""
        if not self.ended:
            self.ended = True
            push(self._on_step, TokenDelta((), error=error), self.abort)
        self.release()

    def _delta(self, output: RequestOutput) -> TokenDelta:
        completion = output.outputs[0]
        stats = output.metrics
        delta = TokenDelta(
            completion.token_ids,
            received_ns=self._clock.received_ns,
            scheduled_ns=int(stats.scheduled_ts * 1e9) if stats is not None else 0,
            sampled_ns=int(stats.last_token_ts * 1e9) if stats is not None else 0,
            sample_ns=self._clock.sample_ns,
        )
        if completion.logprobs:
            delta.logprobs = sample_logprobs(completion.logprobs)
        if output.prompt_logprobs:
            delta.prompt_logprobs = prompt_logprobs(output.prompt_logprobs, output.prompt_token_ids or ())
        delta.cached_tokens = output.num_cached_tokens or 0
        match completion.finish_reason:
            case None:
                pass
            case "stop":
                delta.finish_reason = FinishReason.STOP
                delta.stop_token = True  # stop strings are ours, so vLLM stops at a token only
            case "length":
                delta.finish_reason = FinishReason.LENGTH
            case _:  # "error", "abort", "repetition": not by our asking
                delta.error = EngineFailed() if self._running else self._never_ran()
        self._running = True
        return delta

    def _never_ran(self) -> ServeError:
        """A constraint that looked well to vLLM's check may still fail to compile in the engine."""
        return _refusal(self) if self.request.params.structured is not None else EngineFailed()

    def _failure(self, error: Exception) -> TokenDelta:
        return TokenDelta((), error=EngineDied() if isinstance(error, EngineDeadError) else EngineFailed())


class StepClock:
    """When the engine's latest step reached this process, the end of `transfer`, and how long it sampled. In ns."""

    def __init__(self) -> None:
        self.received_ns = 0
        self.sample_ns = 0

    def install(self, llm: AsyncLLM, steps: StepFeed | None) -> None:
        """Stamp each message that AsyncLLM's output task takes from the engine, before it works on it."""
        client = llm.engine_core
        receive = client.get_output_async

        async def stamped() -> Any:
            outputs = await receive()
            self.received_ns = monotonic_ns()
            if steps is not None:
                self.sample_ns = steps.read(int(outputs.timestamp * 1e9))
            return outputs

        client.get_output_async = stamped


class Sender:
    """The one task that talks to the engine, in order: an abort never overtakes the request it ends."""

    def __init__(self) -> None:
        self._adds: deque[Sink] = deque()  # bounded by the permits
        self._aborts: deque[Sink] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._llm: AsyncLLM | None = None
        self._closed = False
        self._compiler = ThreadPoolExecutor(2, thread_name_prefix="grammar")
        self._compiling: set[asyncio.Task[None]] = set()  # bounded by the permits

    def start(self, llm: AsyncLLM) -> None:
        self._llm = llm
        self._task = asyncio.create_task(self._run(llm), name="engine-sender")

    def add(self, sink: Sink) -> None:
        if sink.request.params.structured is not None and self._llm is not None:
            task = asyncio.create_task(self._compile(self._llm, sink), name="compile-grammar")
            self._compiling.add(task)
            task.add_done_callback(self._compiling.discard)
            return
        self._adds.append(sink)
        self._wake.set()

    def abort(self, sink: Sink) -> None:
        if self._closed:
            sink.release()
            return
        self._aborts.append(sink)
        self._wake.set()

    async def close(self) -> None:
        self._closed = True
        tasks = {*self._compiling, *((self._task,) if self._task else ())}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        self._compiler.shutdown(wait=False, cancel_futures=True)
        for sink in (*self._adds, *self._aborts):
            sink.release()

    async def _run(self, llm: AsyncLLM) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._adds:
                sink = self._adds.popleft()
                if not sink.ended:
                    await self._add(llm, sink)
            if self._aborts:
                aborted = list(self._aborts)
                self._aborts.clear()
                try:
                    await self._abort(llm, [sink.request_id for sink in aborted])
                finally:
                    for sink in aborted:
                        sink.release()

    async def _add(self, llm: AsyncLLM, sink: Sink) -> None:
        with _refusals(sink):
            if llm.errored:  # its output task may have ended since `submit`: nobody would tell the sink
                raise EngineDeadError
            request = sink.prepared or _prepared(llm, sink, await llm.get_supported_tasks())
            llm.input_processor.assign_request_id(request)
            sink.request_id = request.request_id
            llm._run_output_handler()  # type: ignore[no-untyped-call]
            await llm._add_request(request, None, None, 0, sink)  # type: ignore[arg-type]

    async def _compile(self, llm: AsyncLLM, sink: Sink) -> None:
        """vLLM compiles a grammar to see whether it is one: not on the loop, and not for longer than it may take."""
        with _refusals(sink):
            tasks = await llm.get_supported_tasks()
            async with asyncio.timeout(GRAMMAR_DEADLINE_S):
                loop = asyncio.get_running_loop()
                sink.prepared = await loop.run_in_executor(self._compiler, _prepared, llm, sink, tasks)
            self._adds.append(sink)
            self._wake.set()

    async def _abort(self, llm: AsyncLLM, ids: list[str]) -> None:
        try:
            await llm.abort(ids, internal=True)
        except EngineDeadError:
            pass
        except Exception:
            _log.exception("abort_failed")


def _prepared(llm: AsyncLLM, sink: Sink, tasks: Any) -> EngineCoreRequest:
    request = sink.request
    prompt = tokens_input(list(request.prompt_token_ids), cache_salt=request.cache_salt)
    params = vllm_params(request.params, sort_free_top_p=SORT_FREE_TOP_P in (llm.model_config.logits_processors or ()))
    return llm.input_processor.process_inputs(
        request.id, prompt, params, supported_tasks=tasks, priority=request.priority
    )


@contextmanager
def _refusals(sink: Sink) -> Iterator[None]:
    """vLLM's ways to refuse a request, as ours; an unexpected one ends this request alone."""
    try:
        yield
    except EngineDeadError:
        sink.fail(EngineDied())
    except GracefulHTTPError:  # vLLM's own bounds, when its max_num_queued_reqs or _tokens is set
        sink.fail(Overloaded())
    except TimeoutError:
        sink.fail(InvalidRequest("The schema or grammar takes too long to compile.", code="constraint_too_complex"))
    except (VLLMClientError, ValueError):  # its validation errors are of either kind
        _log.warning("engine_refused", request=sink.request.id, exc_info=True)
        sink.fail(_refusal(sink))
    except Exception:
        _log.exception("submit_failed", request=sink.request.id)
        sink.fail(EngineFailed())


def _refusal(sink: Sink) -> InvalidRequest:
    if sink.request.params.structured is not None:
        return InvalidRequest(
            "The engine cannot use this schema, regex or grammar: it is malformed or asks for something not supported.",
            code="invalid_constraint",
        )
    return InvalidRequest("The engine refuses this combination of parameters.")
