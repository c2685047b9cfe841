"""The real server with the real engine, in a thread of this process: one engine for HTTP and engine-level tests."""

import asyncio
import gc
import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
import uvloop
from prometheus_client import REGISTRY

from sampling.params import SamplingParams
from server import config
from server.app import build
from server.engine.protocol import Engine, Handle
from server.engine.runtime import detect_device
from server.request import EngineRequest, TokenDelta
from server.serve import http_server

T = TypeVar("T")

SLOTS = 32  # the engine's max_num_seqs: one more sequence has to wait
LOAD_S = 280
DEADLINE_S = 200  # for what takes seconds on an idle machine


class LiveServer:
    """`host:port` answers once `start` has returned."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        profile = config.CONFIGS / f"{detect_device()}.yaml"
        settings = config.load(
            profile,
            [
                f"engine.args.max_num_seqs={SLOTS}",
                "engine.args.max_model_len=2048",
                "http.keepalive=250",
                "admission.max_wait=240",  # a machine may be slow: nothing here is refused for that
                "chat.tool_parser=hermes",
            ],
            {"engine.model": "smollm2-135m", "http.host": self.host},
        )
        self._failed = threading.Event()
        self._app, self.services = build(settings, on_load_failed=self._failed.set)
        self._socket = socket.create_server((self.host, 0))
        self.port: int = self._socket.getsockname()[1]
        self.base_url = f"http://{self.host}:{self.port}"
        self._server = http_server(self._app, settings.http)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="live-server")

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self.services.ready or self._failed.is_set(), "the engine has loaded", within=LOAD_S)
        assert self.services.ready, "the engine failed to load"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive(), "the server did not stop"
        del self._app, self.services, self._server

    def run(self, work: Coroutine[Any, Any, T], within: float = DEADLINE_S) -> T:
        """`work` on the server's own loop, where the engine lives."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, within), self._loop).result(within + 10)

    @property
    def engine(self) -> Engine:
        return self.services.engine

    @property
    def adapter(self) -> Any:
        """The VllmEngine itself."""
        return self.services.engine._engine  # type: ignore[attr-defined]

    @property
    def llm(self) -> Any:
        return self.adapter._llm

    @property
    def running(self) -> int:
        """Sequences that vLLM's scheduler has in its batch."""
        return round(vllm_gauge("vllm:num_requests_running"))

    @property
    def waiting(self) -> int:
        return round(vllm_gauge("vllm:num_requests_waiting"))

    @property
    def unfinished(self) -> int:
        """Sequences that vLLM's front end still knows."""
        return int(self.llm.get_num_unfinished_requests())

    def idle(self) -> bool:
        return (
            not self.unfinished and not self.running and not self.waiting and not self.services.admission.slots.in_use
        )

    async def abort_all(self) -> None:
        await self.llm.abort(list(self.llm.output_processor.request_states), internal=True)

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        uvloop.run(serve())


@contextmanager
def live_server() -> Iterator[LiveServer]:
    """Loads the engine. Afterwards the process has its own environment, logging and garbage collection back."""
    environment = dict(os.environ)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    server = LiveServer()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # importing torch and vLLM brings a dozen deprecations of their own
            server.start()
        yield server
    finally:
        server.stop()
        structlog.reset_defaults()
        gc.unfreeze()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # vLLM leaves a ZeroMQ context open
            gc.collect()
        os.environ.clear()
        os.environ.update(environment)


def vllm_gauge(name: str) -> float:
    samples = [s for metric in REGISTRY.collect() for s in metric.samples if s.name == name]
    assert samples, f"vLLM publishes no {name}"
    return sum(sample.value for sample in samples)


def wait_until(condition: Callable[[], bool], what: str, within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.02)


async def until(condition: Callable[[], bool], what: str, within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        await asyncio.sleep(0.02)


@dataclass
class Sequence:
    """One engine-level request and everything its `on_step` was told."""

    request: EngineRequest
    deltas: list[TokenDelta] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    handle: Handle | None = None

    @property
    def ids(self) -> list[int]:
        return [token_id for delta in self.deltas for token_id in delta.token_ids]

    def on_step(self, delta: TokenDelta) -> None:
        self.deltas.append(delta)
        if delta.error is not None or delta.finish_reason is not None:
            self.ended.set()


def submit(engine: Engine, name: str, prompt: list[int], params: SamplingParams) -> Sequence:
    sequence = Sequence(EngineRequest(name, prompt, params))
    sequence.handle = engine.submit(sequence.request, sequence.on_step, sequence.released.set)
    return sequence


async def all_ended(*sequences: Sequence) -> None:
    waits: list[Awaitable[Any]] = [sequence.ended.wait() for sequence in sequences]
    await asyncio.gather(*waits)


async def generate(engine: Engine, name: str, prompt: list[int], params: SamplingParams) -> Sequence:
    sequence = submit(engine, name, prompt, params)
    await sequence.ended.wait()
    return sequence
