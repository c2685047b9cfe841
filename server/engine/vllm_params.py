"""Our sampling parameters in vLLM's shape, the samplers it needs for them, and its log probabilities in our shape."""

from collections.abc import Sequence
from typing import Any

from vllm.config import VllmConfig
from vllm.logprobs import FlatLogprobs
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.sampling_params import SamplingParams as VllmSamplingParams
from vllm.v1.outputs import LogprobsLists

from sampling.logprobs import LOWEST, TokenLogprob
from sampling.params import SamplingParams, Structured
from sampling.processors.chain import SHAPING, ShapingProcessor
from sampling.processors.top_p import TOP_P, SortFreeTopP

PROCESSOR = f"{ShapingProcessor.__module__}:{ShapingProcessor.__qualname__}"
SORT_FREE_TOP_P = f"{SortFreeTopP.__module__}:{SortFreeTopP.__qualname__}"


def vllm_params(params: SamplingParams, *, sort_free_top_p: bool = False) -> VllmSamplingParams:
    """Ours in vLLM's shape; what is None stays at vLLM's own default. `sort_free_top_p`: the engine has loaded it."""
    extra: dict[str, Any] = {SHAPING: params.shaping.to_wire()} if params.shaping else {}
    top_p = params.top_p
    if sort_free_top_p and top_p is not None and top_p < 1 and not params.top_k:
        extra[TOP_P], top_p = top_p, None
    optional: dict[str, Any] = {
        "temperature": params.temperature,
        "top_p": top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "seed": params.seed,
    }
    return VllmSamplingParams(
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=dict(params.logit_bias) or None,
        stop_token_ids=list(params.stop_token_ids),
        ignore_eos=params.ignore_eos,
        skip_special_tokens=params.skip_special_tokens,
        logprobs=params.logprobs,
        prompt_logprobs=params.prompt_logprobs,
        flat_logprobs=True,
        structured_outputs=_structured(params.structured) if params.structured else None,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args=extra or None,
        skip_clone=True,
        **{name: value for name, value in optional.items() if value is not None},
    )


def load_samplers(config: VllmConfig) -> bool:
    """Have the engine load our samplers, after the operator's own processors; False where it may not.

    vLLM does not start with a processor beside speculative decoding. A model may bring that along without any argument,
    so the finished configuration is asked and not the arguments.
    """
    if config.speculative_config is not None:
        return False
    config.model_config.logits_processors = [*(config.model_config.logits_processors or ()), PROCESSOR]
    return True


def sample_logprobs(flat: Any) -> list[TokenLogprob]:
    """Per sampled token; vLLM puts the sampled one first and the likeliest, best first, after it."""
    assert isinstance(flat, FlatLogprobs)
    return [_entry(flat, start, end) for start, end in zip(flat.start_indices, flat.end_indices, strict=True)]


def logprob_rows(lists: LogprobsLists, most: int | None) -> list[TokenLogprob]:
    """As `sample_logprobs`, from the engine's own rows: as wide as the widest request of the batch wants them."""
    rows = zip(
        lists.logprob_token_ids.tolist(), lists.logprobs.tolist(), lists.sampled_token_ranks.tolist(), strict=True
    )
    end = 1 + (most or 0)
    return [
        TokenLogprob(ids[0], _finite(values[0]), rank, tuple(zip(ids[1:end], map(_finite, values[1:end]), strict=True)))
        for ids, values, rank in rows
    ]


def prompt_logprobs(flat: Any, prompt: Sequence[int]) -> list[TokenLogprob | None]:
    """Per prompt token; None for the first, which nothing comes before."""
    assert isinstance(flat, FlatLogprobs)
    spans = zip(flat.start_indices, flat.end_indices, strict=True)
    entries = [_entry(flat, start, end) if end > start else None for start, end in spans]
    return entries[: len(prompt)]


def _entry(flat: FlatLogprobs, start: int, end: int) -> TokenLogprob:
    top = tuple((flat.token_ids[i], _finite(flat.logprobs[i])) for i in range(start + 1, end))
    return TokenLogprob(flat.token_ids[start], _finite(flat.logprobs[start]), flat.ranks[start] or 0, top)


def _finite(logprob: float) -> float:
    return logprob if logprob > LOWEST else LOWEST


def _structured(structured: Structured) -> StructuredOutputsParams:
    match structured.kind:
        case "json_object":
            return StructuredOutputsParams(json_object=True)
        case "choice":
            return StructuredOutputsParams(choice=list(structured.value))
    constraint: dict[str, Any] = {structured.kind: structured.value}
    return StructuredOutputsParams(**constraint)
