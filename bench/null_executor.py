"""A vLLM executor that runs no model, so that what is left to measure is everything around the model.

    python -m vllm.entrypoints.openai.api_server --model DIR \
        --distributed-executor-backend bench.null_executor.NullExecutor

Scheduler, KV-cache bookkeeping and IPC are vLLM's own; only the answer to "run this batch" is canned. No weights are
loaded and no KV cache is allocated. `bench.canned.NullSettings` lists the variables that set its pace and its words.

Not imitated: structured output, pooling, draft tokens. Log probabilities are made up.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TextIO, TypeVar

import numpy as np
from vllm.config import ModelConfig
from vllm.tasks import SupportedTask
from vllm.tokenizers.registry import cached_tokenizer_from_config
from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds, LogprobsLists, ModelRunnerOutput
from vllm.v1.utils import record_function_or_nullcontext

from bench.canned import CannedBatch, NullSettings

PRETEND_KV_BYTES = 16 << 30

# The names under which the real model runner reports its parts: a probe in the engine sees the null one just the same.
FORWARD_SCOPE = "gpu_model_runner: forward"
SAMPLE_SCOPE = "gpu_model_runner: sample"

# Orders to a worker that hold nothing to do when there is none.
IGNORED_RPCS = frozenset(
    {
        "execute_dummy_batch",
        "profile",
        "reset_encoder_cache",
        "reset_mm_cache",
        "set_kv_cache_layout",
        "shutdown",
        "sleep",
        "synchronize_device",
        "take_draft_token_ids",
        "update_max_model_len",
        "wake_up",
    }
)

_T = TypeVar("_T")


def canned_token_ids(model_config: ModelConfig, text: str) -> tuple[int, ...]:
    tokenizer = cached_tokenizer_from_config(model_config)
    if tokenizer is None:
        return (1000,)
    return tuple(tokenizer.encode(text, add_special_tokens=False))


class DueFuture(Future[_T], Generic[_T]):
    """A result that is known already but may not be had before `due_ns`."""

    def __init__(self, value: _T, due_ns: int, scope: str, stamps: TextIO | None = None) -> None:
        super().__init__()
        self._value = value
        self._due_ns = due_ns
        self._scope = scope
        self._stamps = stamps

    def result(self, timeout: float | None = None) -> _T:
        if not self.done():
            with record_function_or_nullcontext(self._scope):
                _sleep_until(self._due_ns)
            if self._stamps is not None:
                print(time.monotonic_ns(), file=self._stamps)
            self.set_result(self._value)
        return super().result()


def _output(sampled: dict[str, list[int]], alternatives: int | None) -> ModelRunnerOutput:
    return ModelRunnerOutput(
        logprobs=None if alternatives is None else _logprobs(list(sampled.values()), alternatives),
        req_ids=list(sampled),
        req_id_to_index={req_id: index for index, req_id in enumerate(sampled)},
        sampled_token_ids=list(sampled.values()),
    )


def _logprobs(sampled: Sequence[Sequence[int]], alternatives: int) -> LogprobsLists:
    """A row per request, the sampled token first; one that samples nothing has a row that nobody reads."""
    ids = np.zeros((len(sampled), alternatives + 1), dtype=np.int32)
    ids[:, 0] = [token_ids[0] if token_ids else 0 for token_ids in sampled]
    ids[:, 1:] = np.arange(1, alternatives + 1)
    values = np.tile(-0.5 - np.arange(alternatives + 1, dtype=np.float32), (len(sampled), 1))
    return LogprobsLists(ids, values, np.ones(len(sampled), dtype=np.int32))


def _sleep_until(due_ns: int) -> None:
    while (left := due_ns - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


class NullExecutor(Executor):
    """One pretended device, which takes its batches one after the other."""

    supports_pp = False

    def _init_executor(self) -> None:
        self._settings = NullSettings.from_env(os.environ)
        self._batch = CannedBatch(self._settings.token_ids or canned_token_ids(self.model_config, self._settings.text))
        self._awaiting_sample: deque[DueFuture[ModelRunnerOutput]] = deque()
        self._busy_until_ns = 0
        stamps = self._settings.stamps
        self._stamps = None if stamps is None else open(stamps, "a", buffering=1)  # noqa: SIM115

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    # Start-up

    def get_kv_cache_specs(self) -> list[dict[str, KVCacheSpec]]:
        layers = self.model_config.get_num_layers(self.parallel_config)
        return [{f"model.layers.{layer}.attn": self._kv_cache_spec() for layer in range(layers)}]

    def _kv_cache_spec(self) -> FullAttentionSpec:
        dtype = self.model_config.dtype
        assert not isinstance(dtype, str), "resolved when the model's config was read"
        return FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=self.model_config.get_num_kv_heads(self.parallel_config),
            head_size=self.model_config.get_head_size(),
            dtype=dtype,
        )

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBNHC"]]

    def set_kv_cache_layout(self, layout_name: str) -> None:
        """The engine has recorded it; no cache is laid out here."""

    def determine_available_memory(self) -> list[int]:
        return [self.cache_config.kv_cache_memory_bytes or max(PRETEND_KV_BYTES, 2 * self._longest_request_bytes())]

    def _longest_request_bytes(self) -> int:
        specs = self.get_kv_cache_specs()[0].values()
        return sum(spec.max_memory_usage_bytes(self.vllm_config) for spec in specs)

    def initialize_from_config(self, kv_cache_configs: list[KVCacheConfig]) -> None:
        """Nothing is allocated."""

    def compile_or_warm_up_model(self) -> None:
        """There is no model."""

    @property
    def supported_tasks(self) -> tuple[SupportedTask, ...]:
        return ("generate",)

    # Steps

    def execute_model(  # type: ignore[override]
        self, scheduler_output: SchedulerOutput, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput | None] | None:
        future = self._start(scheduler_output)
        return future if non_block else future.result()

    def _start(self, step: SchedulerOutput) -> Future[ModelRunnerOutput | None]:
        tokens = step.total_num_scheduled_tokens
        sampled = self._batch.run(step)
        if not tokens:
            return DueFuture(EMPTY_MODEL_RUNNER_OUTPUT, 0, FORWARD_SCOPE)
        # With asynchronous scheduling a batch arrives while its predecessor is still on the device.
        start_ns = max(time.monotonic_ns(), self._busy_until_ns)
        forward_ns = start_ns + self._settings.step_ns + self._settings.token_ns * tokens
        self._busy_until_ns = forward_ns + self._settings.sample_ns
        output = _output(sampled, self._batch.alternatives(sampled))
        stamps = self._stamps if any(sampled.values()) else None
        self._awaiting_sample.append(DueFuture(output, self._busy_until_ns, SAMPLE_SCOPE, stamps))
        return DueFuture(None, forward_ns, FORWARD_SCOPE)

    def sample_tokens(  # type: ignore[override]
        self, grammar_output: GrammarOutput | None, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput]:
        future = self._awaiting_sample.popleft()
        return future if non_block else future.result()

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        return None

    # Orders

    def collective_rpc(
        self,
        method: str | Callable[..., Any],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
    ) -> Any:
        if method not in IGNORED_RPCS:
            raise NotImplementedError(f"the null executor has no worker to run {method!r}")
        if not non_block:
            return [None]
        done: Future[list[None]] = Future()
        done.set_result([None])
        return done

    def check_health(self) -> None:
        """Always healthy: there is nothing that could fail."""

    def shutdown(self) -> None:
        if self._stamps is not None:
            self._stamps.close()
