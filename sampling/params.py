"""How a sequence is to be sampled: the engine-neutral record that every protocol fills and every engine reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Checked values; `None` means "the model's or the engine's default".

    `max_tokens` and `min_tokens` count output tokens; `logit_bias` maps token id → added logit;
    `stop` strings are matched by us, `stop_token_ids` by the engine.
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
