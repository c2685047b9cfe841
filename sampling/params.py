"""How a sequence is to be sampled: the engine-neutral record that every protocol fills and every engine reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sampling.shaping import Shaping

StructuredKind = Literal["json", "json_object", "regex", "choice", "grammar", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Structured:
    """What the output must conform to: `json` and `structural_tag` as JSON text, choices as a tuple."""

    kind: StructuredKind
    value: str | tuple[str, ...] = ""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Checked values; `None` means "the model's or the engine's default".

    `max_tokens` and `min_tokens` count output tokens; `logit_bias` maps token id → added logit;
    `stop` strings are matched by us, `stop_token_ids` by the engine. `logprobs` and `prompt_logprobs` are how many
    alternatives to report for each sampled or prompt token; 0 reports that token alone.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured: Structured | None = None
    shaping: Shaping | None = None
