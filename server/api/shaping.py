"""The request fields of the samplers that the engine lacks, and how they become a Shaping."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from sampling.breakers import DEFAULT_BREAKERS, breaker_sequences
from sampling.shaping import Shaping
from server.api.body import WireModel
from server.engine.protocol import ModelInfo
from server.engine.tokenizer_pool import TokenizerPool
from server.errors import InvalidRequest

MAX_BREAKERS = 16
MAX_BREAKER_CHARACTERS = 40
MAX_BREAKER_SEQUENCES = 16_384  # that breakers may be spelled in; the usual ones have some hundreds to thousands

Breaker = Annotated[str, Field(min_length=1, max_length=MAX_BREAKER_CHARACTERS)]
Breakers = Annotated[list[Breaker], Field(fail_fast=True, max_length=MAX_BREAKERS)]


class ShapingFields(WireModel):
    """Named as llama.cpp and text-generation-webui name them; null is the default, which changes nothing."""

    dry_multiplier: float | None = Field(
        default=None, ge=0, le=100, description="DRY: penalty on a token that lengthens a repetition; 0: off"
    )
    dry_base: float | None = Field(
        default=None, ge=1, le=10, description="DRY: the penalty's factor for each token that is repeated further"
    )
    dry_allowed_length: int | None = Field(
        default=None, ge=1, le=4096, description="DRY: repetitions of fewer tokens are free"
    )
    dry_sequence_breakers: Breakers | None = Field(
        default=None, description="DRY: texts that no repetition reaches across; [] for none"
    )
    no_repeat_ngram_size: int | None = Field(
        default=None, ge=0, le=256, description="no run of so many tokens occurs twice; 0: off"
    )
    top_n_sigma: float | None = Field(
        default=None, ge=-1, le=100, description="keeps logits within n standard deviations of the highest; 0, -1: off"
    )
    typical_p: float | None = Field(
        default=None, gt=0, le=1, description="keeps the most typical tokens up to this probability; 1: off"
    )
    xtc_probability: float | None = Field(
        default=None, ge=0, le=1, description="XTC: how often a step loses its likeliest tokens; 0: off"
    )
    xtc_threshold: float | None = Field(
        default=None, ge=0, le=1, description="XTC: all tokens from this probability on but the last go; above 0.5: off"
    )
    dynatemp_range: float | None = Field(
        default=None, ge=0, le=2, description="the temperature varies by so much to both sides with entropy; 0: off"
    )
    dynatemp_exponent: float | None = Field(
        default=None, gt=0, le=10, description="dynamic temperature: how entropy maps to the range; 1: linearly"
    )
    mirostat: Literal[0, 2] | None = Field(default=None, description="2: Mirostat 2.0, the only version here; 0: off")
    mirostat_tau: float | None = Field(
        default=None, ge=0, le=100, description="Mirostat: the surprise to hold, in bits per token"
    )
    mirostat_eta: float | None = Field(
        default=None, gt=0, le=1, description="Mirostat: how fast it follows the surprise measured"
    )


SHAPING_FIELDS = tuple(ShapingFields.model_fields)


async def shaping_of(
    fields: ShapingFields, temperature: float | None, model: ModelInfo, tokenizers: TokenizerPool
) -> Shaping | None:
    """What `fields` ask for; None when that changes nothing. `temperature` is the request's, or its model's default.

    Raises InvalidRequest, or Overloaded where breakers cannot be looked up in time.
    """
    values = {name: value for name in SHAPING_FIELDS if (value := getattr(fields, name)) is not None}
    breakers: Sequence[str] = values.pop("dry_sequence_breakers", DEFAULT_BREAKERS)
    values["top_n_sigma"] = max(values.get("top_n_sigma", 0.0), 0.0)  # llama.cpp's -1 is off
    shaping = Shaping(**values)
    if not shaping.active:
        return None
    _check(shaping, temperature, model)
    if not shaping.dry_multiplier:
        return shaping
    # The vocabulary is looked through for them: a text at least as long as it has tokens.
    backend = model.tokenizer.backend
    found = await tokenizers.run(model.vocab_size, lambda: breaker_sequences(backend, breakers))
    if len(found) > MAX_BREAKER_SEQUENCES:
        name = "dry_sequence_breakers"
        raise InvalidRequest(f"{name}: more than {MAX_BREAKER_SEQUENCES} of the model's tokens hold one.", param=name)
    return replace(shaping, dry_sequence_breakers=found)


def _check(shaping: Shaping, temperature: float | None, model: ModelInfo) -> None:
    if not model.shapes:
        name = next(iter(shaping.to_wire()))
        message = f"{name}: not with speculative decoding, which this server's engine does."
        raise InvalidRequest(message, param=name, code="unsupported_parameter")
    for name in ("dynatemp_range", "mirostat"):
        if temperature == 0 and getattr(shaping, name):
            raise InvalidRequest(f"{name}: has no effect at temperature 0.", param=name)
