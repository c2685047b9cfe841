"""Our sampling parameters in vLLM's shape, and vLLM's log probabilities in ours."""

from collections.abc import Sequence
from typing import Any

from vllm.logprobs import FlatLogprobs
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.sampling_params import SamplingParams as VllmSamplingParams

from sampling.logprobs import LOWEST, TokenLogprob
from sampling.params import SamplingParams, Structured


def vllm_params(params: SamplingParams) -> VllmSamplingParams:
    """Ours in vLLM's shape; what is None stays at vLLM's own default."""
    optional: dict[str, Any] = {
        "temperature": params.temperature,
        "top_p": params.top_p,
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
        skip_clone=True,
        **{name: value for name, value in optional.items() if value is not None},
    )


def sample_logprobs(flat: Any) -> list[TokenLogprob]:
    """Per sampled token; vLLM puts the sampled one first and the likeliest, best first, after it."""
    assert isinstance(flat, FlatLogprobs)
    return [_entry(flat, start, end) for start, end in zip(flat.start_indices, flat.end_indices, strict=True)]


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
