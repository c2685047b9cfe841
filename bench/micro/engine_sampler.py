"""vLLM's own sampler without its engine: the record of a batch that the model runner would make, made by hand."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import torch
import vllm._custom_ops  # noqa: F401  loads the kernels that the sampler calls on a CPU
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessors
from vllm.v1.sample.logits_processor.builtin import LogitBiasLogitsProcessor, MinPLogitsProcessor
from vllm.v1.sample.logits_processor.interface import AddedRequest
from vllm.v1.sample.metadata import SamplingMetadata


def batch_of(
    params: SamplingParams,
    rows: int,
    vocabulary: int,
    device: torch.device,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
) -> SamplingMetadata:
    """A batch of `rows` requests that are all alike; what nobody asks for is left out, as in the engine."""

    def column(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((rows,), value, dtype=dtype, device=device)

    greedy = params.temperature == 0
    return SamplingMetadata(
        temperature=None if greedy else column(params.temperature),
        all_greedy=greedy,
        all_random=not greedy,
        top_p=column(params.top_p) if params.top_p < 1 else None,
        top_k=column(params.top_k, torch.int32) if params.top_k > 0 else None,
        generators={},
        max_num_logprobs=None,
        no_penalties=(params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (0, 0, 1),
        prompt_token_ids=torch.tensor(prompt, dtype=torch.int64, device=device).expand(rows, -1),
        frequency_penalties=column(params.frequency_penalty),
        presence_penalties=column(params.presence_penalty),
        repetition_penalties=column(params.repetition_penalty),
        output_token_ids=[list(output) for _ in range(rows)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=_processors(params, rows, device),
    )


def _processors(params: SamplingParams, rows: int, device: torch.device) -> LogitsProcessors:
    # Of the engine's configuration they read one field.
    config = cast(Any, SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=rows)))
    processors = [LogitBiasLogitsProcessor(config, device, False), MinPLogitsProcessor(config, device, False)]
    added: list[AddedRequest] = [(row, params, [], []) for row in range(rows)]
    for processor in processors:
        processor.update_state(BatchUpdate(batch_size=rows, removed=[], added=added, moved=[]))
    return LogitsProcessors(processors)
