"""The request fields that chat and completions share, and how they become SamplingParams."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sampling.params import SamplingParams, Structured
from sampling.structured import MAX_CHOICES as MAX_STRUCTURED_CHOICES
from sampling.structured import StructuredError, bounded, choices, regex, schema_text
from server.api.body import WireModel
from server.api.shaping import ShapingFields
from server.engine.protocol import ModelInfo
from server.errors import ContextLengthExceeded, InvalidRequest, ModelNotFound

MAX_STOPS = 16
MAX_LOGIT_BIAS = 1024  # what vLLM's V2 runner holds; more would kill the engine
MAX_STOP_TOKEN_IDS = 112  # likewise: it holds 128 together with the model's own ends of sequence
MAX_CHOICES = 128

_INT64 = 2**63
StopString = Annotated[str, Field(min_length=1)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


def _few_enough(bias: Any) -> Any:
    """Before the entries are looked at: a mapping of a million wrong ones would hold up every stream."""
    if isinstance(bias, dict) and len(bias) > MAX_LOGIT_BIAS:
        raise PydanticCustomError("too_long", "Mapping should have at most {limit} items", {"limit": MAX_LOGIT_BIAS})
    return bias


LogitBias = Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_few_enough)]


MAX_LOGPROBS = 20  # OpenAI's, and vLLM's default bound


class StreamOptions(WireModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class StructuredFields(WireModel):
    """vLLM's `structured_outputs`: one kind of constraint."""

    json_schema: dict[str, Any] | str | None = Field(default=None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: Annotated[list[str], Field(fail_fast=True, max_length=MAX_STRUCTURED_CHOICES)] | None = None
    grammar: str | None = None
    structural_tag: str | dict[str, Any] | None = None

    def constraint(self) -> Structured:
        """Raises InvalidRequest unless exactly one kind is given, and well."""
        given = [name for name, value in self if value is not None and value is not False]
        if len(given) != 1:
            raise InvalidRequest("structured_outputs: give exactly one kind.", param="structured_outputs")
        try:
            return self._of_kind()
        except (StructuredError, orjson.JSONDecodeError) as error:
            text = str(error) if isinstance(error, StructuredError) else "The text is not valid JSON."
            raise InvalidRequest(f"structured_outputs: {text}", param="structured_outputs") from None

    def _of_kind(self) -> Structured:
        if self.json_schema is not None:
            schema = orjson.loads(self.json_schema) if isinstance(self.json_schema, str) else self.json_schema
            return Structured("json", schema_text(schema))
        if self.regex is not None:
            return Structured("regex", regex(self.regex))
        if self.choice is not None:
            return Structured("choice", choices(self.choice))
        if self.grammar is not None:
            return Structured("grammar", bounded(self.grammar))
        if self.structural_tag is not None:
            tag = orjson.loads(self.structural_tag) if isinstance(self.structural_tag, str) else self.structural_tag
            return Structured("structural_tag", schema_text(tag))
        return Structured("json_object")


class SamplingFields(ShapingFields):
    """Ranges are checked here, sizes of the vocabulary and the context where the model is known."""

    model: str = Field(min_length=1, max_length=1024)
    n: int | None = Field(default=1, ge=1, le=MAX_CHOICES)
    max_tokens: int | None = Field(default=None, ge=1, lt=_INT64)
    min_tokens: int | None = Field(default=0, ge=0, lt=_INT64)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, lt=_INT64)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-_INT64, lt=_INT64)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    logit_bias: LogitBias | None = None
    stop: StopString | Annotated[list[StopString], Field(fail_fast=True, max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(fail_fast=True, max_length=MAX_STOP_TOKEN_IDS)] | None = None
    include_stop_str_in_output: bool | None = False
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = Field(default=None, max_length=1024)
    include_timings: bool | None = False
    structured_outputs: StructuredFields | None = None
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    return_token_ids: bool | None = False
    priority: int | None = Field(default=0, ge=-(2**31), lt=2**31)
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024)

    @property
    def choices(self) -> int:
        """Per prompt."""
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return (
            self.include_usage and self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)
        )

    def constraint(self) -> Structured | None:
        """Of `structured_outputs`; raises InvalidRequest."""
        return self.structured_outputs.constraint() if self.structured_outputs else None

    @property
    def salt(self) -> str | None:
        """What the engine gets: of one shape, whatever characters the client chose."""
        return None if self.cache_salt is None else sha256(self.cache_salt.encode()).hexdigest()

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


def check_model(name: str, model: ModelInfo) -> None:
    """Raises ModelNotFound unless `name` is the served model's."""
    if name not in (model.name, model.root):
        raise ModelNotFound(f"The model `{name[:100]}` does not exist.", param="model")


def refuse(values: dict[str, Any]) -> None:
    """Raises InvalidRequest for the first parameter that is set but not implemented: ignoring it would mislead."""
    for name, value in values.items():
        if value:
            raise InvalidRequest(f"`{name}` is not supported.", param=name, code="unsupported_parameter")


def sampling_params(
    fields: SamplingFields,
    model: ModelInfo,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | None,
    max_tokens_name: str = "max_tokens",
    prompt_name: str,
) -> SamplingParams:
    """Checked against the model: raises InvalidRequest or ContextLengthExceeded.

    Without `max_tokens` a sequence may fill the context.
    """
    longest = max(map(len, prompts))
    room = model.max_model_len - longest
    if room < 1:
        raise ContextLengthExceeded(model.max_model_len, longest, max_tokens or 1, prompt_name)
    if max_tokens is None:
        max_tokens = min(model.default_sampling.get("max_tokens", room), room)
    if max_tokens > room:
        raise ContextLengthExceeded(model.max_model_len, longest, max_tokens, max_tokens_name)
    min_tokens = fields.min_tokens or 0
    if min_tokens > max_tokens:
        raise InvalidRequest("min_tokens is larger than max_tokens.", param="min_tokens")
    if fields.prompt_logprobs is not None and fields.stream:
        raise InvalidRequest("prompt_logprobs cannot be streamed.", param="prompt_logprobs")
    default = model.default_sampling.get
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=_given(fields.temperature, default("temperature")),
        top_p=_given(fields.top_p, default("top_p")),
        top_k=_top_k(_given(fields.top_k, default("top_k")), model.vocab_size),
        min_p=_given(fields.min_p, default("min_p")),
        seed=fields.seed,
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        repetition_penalty=_given(fields.repetition_penalty, default("repetition_penalty")),
        logit_bias=_logit_bias(fields.logit_bias or {}, model.vocab_size),
        stop=fields.stops,
        stop_token_ids=_token_ids(fields.stop_token_ids or (), model.vocab_size, "stop_token_ids"),
        include_stop=bool(fields.include_stop_str_in_output),
        ignore_eos=bool(fields.ignore_eos),
        skip_special_tokens=fields.skip_special_tokens is not False,
        prompt_logprobs=fields.prompt_logprobs,
    )


def check_token_ids(ids: Sequence[int], vocab_size: int, param: str) -> None:
    """Raises InvalidRequest for an id the model does not have: it would kill the engine, not only this request."""
    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
        raise InvalidRequest(f"{param}: token ids must lie between 0 and {vocab_size - 1}.", param=param)


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value


def _top_k(top_k: int | None, vocab_size: int) -> int | None:
    """Any k beyond the vocabulary keeps everything, as -1 and 0 do."""
    if top_k is None:
        return None
    return 0 if top_k <= 0 or top_k >= vocab_size else top_k


def _token_ids(ids: Sequence[int], vocab_size: int, param: str) -> tuple[int, ...]:
    check_token_ids(ids, vocab_size, param)
    return tuple(ids)


def _logit_bias(bias: dict[str, float], vocab_size: int) -> dict[int, float]:
    if not all(key.isascii() and key.isdigit() and len(key) < 10 for key in bias):
        raise InvalidRequest("logit_bias: keys must be token ids.", param="logit_bias")
    ids = {int(key): value for key, value in bias.items()}
    check_token_ids(list(ids), vocab_size, "logit_bias")
    return ids
