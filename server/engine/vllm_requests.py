"""Sequences on their way into vLLM, and out of it when they are aborted.

`Sender` is the one task that talks to the engine; `vllm_pump` is the way back. What they lean on below vLLM's public
API is held by tests/integration/test_vllm_contract.py.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import structlog
from vllm.exceptions import GracefulHTTPError, VLLMClientError
from vllm.inputs.engine import tokens_input
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from server.engine.vllm_params import SORT_FREE_TOP_P, vllm_params
from server.engine.vllm_sink import Sink, refusal
from server.errors import EngineDied, EngineFailed, InvalidRequest, Overloaded

GRAMMAR_DEADLINE_S = 20.0

_log = structlog.get_logger(__name__)


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
        sink.fail(refusal(sink))
    except Exception:
        _log.exception("submit_failed", request=sink.request.id)
        sink.fail(EngineFailed())
