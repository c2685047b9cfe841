"""vLLM's AsyncLLM behind the Engine protocol: loading it, and what it is.

Token ids go in, token ids come out: prompts are tokenized by us, `detokenize=False`, deltas. One task has the way in
(vllm_requests.py) and one the way out (vllm_pump.py), which pushes each sequence's step straight into its stream: no
queue, task or generator per stream.
"""

import asyncio
from typing import Any

import vllm
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from sampling.params import SamplingParams
from server.engine.lifeline import Lifeline
from server.engine.protocol import ModelInfo, OnReleased, OnStep
from server.engine.steps import OnEngineStep, StepFeed
from server.engine.tokenizer import FolderTokenizer
from server.engine.vllm_params import load_samplers
from server.engine.vllm_pump import Pump
from server.engine.vllm_requests import Sender
from server.engine.vllm_sink import Arrival, Sink
from server.engine.vllm_socket import start_reading
from server.errors import EngineDied, NotReady
from server.request import EngineRequest, TokenDelta

VLLM_VERSION = "0.32.0"


class VllmEngine:
    """`args` are AsyncEngineArgs' own, by vLLM's names. Without `on_engine_step` the engine's steps are not probed."""

    def __init__(self, model: str, args: dict[str, Any], on_engine_step: OnEngineStep | None = None) -> None:
        if not vllm.__version__.startswith(VLLM_VERSION):
            raise RuntimeError(f"built for vLLM {VLLM_VERSION}, found {vllm.__version__}")
        self._args = AsyncEngineArgs(**{"model": model, **args})
        self._on_engine_step = on_engine_step
        self._lifeline: Lifeline | None = None
        self._llm: AsyncLLM | None = None
        self._model: ModelInfo | None = None
        self._sender = Sender()
        self._latest = Arrival()
        self._pump: Pump | None = None

    @property
    def model(self) -> ModelInfo:
        if self._model is None:
            raise NotReady
        return self._model

    @property
    def alive(self) -> bool:
        return self._llm is not None and not self._llm.errored

    @property
    def last_step_ns(self) -> int:
        return self._latest.received_ns

    async def start(self) -> None:
        self._lifeline = Lifeline()
        steps = None if self._on_engine_step is None else StepFeed(self._lifeline.folder, self._on_engine_step)
        llm = await asyncio.to_thread(self._load)
        start_reading(llm.engine_core)
        self._pump = Pump(llm, self._latest, steps)
        self._pump.start()
        await llm.get_supported_tasks()  # an engine round trip the first time
        self._llm = llm
        self._sender.start(llm)
        await self._warm_up()

    def submit(self, request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> Sink:
        if self._llm is None:
            raise NotReady
        if self._llm.errored:
            raise EngineDied
        sink = Sink(request, on_step, on_released, self._sender.abort, self._latest)
        self._sender.add(sink)
        return sink

    async def close(self) -> None:
        await self._sender.close()
        if self._pump is not None:
            await self._pump.close()  # before the engine ends, which it would take for a death
        if self._llm is not None:
            await asyncio.to_thread(self._llm.shutdown, 5.0)
        if self._lifeline is not None:
            self._lifeline.close()

    def _load(self) -> AsyncLLM:
        """Blocks for the tens of seconds that model loading takes: runs in a thread."""
        engine = self._args.create_engine_config(UsageContext.OPENAI_API_SERVER)
        shapes = load_samplers(engine)
        llm = AsyncLLM.from_vllm_config(
            engine,
            usage_context=UsageContext.OPENAI_API_SERVER,
            enable_log_requests=self._args.enable_log_requests,
            disable_log_stats=self._args.disable_log_stats,
        )
        config = llm.model_config
        tokenizer = FolderTokenizer(
            config.tokenizer, revision=config.tokenizer_revision, trust_remote_code=config.trust_remote_code
        )
        self._model = ModelInfo(
            name=_served_name(config.served_model_name, config.model),
            root=config.model,
            max_model_len=config.max_model_len,
            vocab_size=min(config.get_vocab_size(), tokenizer.backend.get_vocab_size()),
            tokenizer=tokenizer,
            max_num_seqs=llm.vllm_config.scheduler_config.max_num_seqs,
            max_batch_tokens=llm.vllm_config.scheduler_config.max_num_batched_tokens,
            default_sampling=_default_sampling(config.get_diff_sampling_param()),
            shapes=shapes,
        )
        return llm

    async def _warm_up(self) -> None:
        """One tiny generation: the first request must not pay for what is set up lazily."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_step(delta: TokenDelta) -> None:
            if done.done():
                return
            if delta.error is not None:
                done.set_exception(delta.error)
            elif delta.finish_reason is not None:
                done.set_result(None)

        request = EngineRequest("warm-up", [0], SamplingParams(max_tokens=2, ignore_eos=True))
        handle = self.submit(request, on_step, lambda: None)
        try:
            async with asyncio.timeout(300):
                await done
        finally:
            handle.abort()


def _default_sampling(diff: dict[str, Any]) -> dict[str, Any]:
    """generation_config's values by our names (vLLM leaves applying them to its own HTTP layer)."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
    return {name: diff[name] for name in names if name in diff}


def _served_name(served: str | list[str] | None, model: str) -> str:
    if isinstance(served, list):
        served = served[0] if served else None
    return served or model
