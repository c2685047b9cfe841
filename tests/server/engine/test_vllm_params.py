"""Ours in vLLM's shape and back; what vLLM gives for impossible tokens becomes a number that JSON can say."""

import json
import math
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.logprobs import FlatLogprobs
from vllm.sampling_params import RequestOutputKind
from vllm.sampling_params import SamplingParams as VllmSamplingParams
from vllm.v1.sample.logits_processor import cached_load_custom_logitsprocs
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder
from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors_params_validator

from sampling.logprobs import LOWEST, TokenLogprob
from sampling.params import SamplingParams, Structured
from sampling.processors.chain import SHAPING, ShapingProcessor
from sampling.processors.top_p import TOP_P
from sampling.shaping import Shaping
from server.engine.vllm_params import PROCESSOR, load_samplers, prompt_logprobs, sample_logprobs, vllm_params

PLAIN = SamplingParams(max_tokens=7)
OPTIONAL = ("temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty")


def flat(*positions: list[tuple[int, float, int]]) -> FlatLogprobs:
    """A position is of (token, log probability, rank)."""
    found = FlatLogprobs()
    for position in positions:
        ids = [token_id for token_id, _, _ in position]
        logprobs = [logprob for _, logprob, _ in position]
        found.append_fast(ids, logprobs, chain(rank for _, _, rank in position), [None] * len(position))
    return found


def test_our_parameters_are_vllms() -> None:
    ours: dict[str, Any] = {
        "max_tokens": 9,
        "min_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.75,
        "top_k": 40,
        "min_p": 0.1,
        "seed": -3,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.5,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "logprobs": 3,
        "prompt_logprobs": 0,
    }
    params = vllm_params(SamplingParams(**ours, logit_bias={7: 1.5}, stop_token_ids=(5, 6)))
    assert {name: getattr(params, name) for name in ours} == ours
    assert params.logit_bias == {7: 1.5}
    assert params.stop_token_ids == [5, 6]


def test_what_is_left_out_is_vllms_default_and_stop_strings_are_never_vllms() -> None:
    params = vllm_params(replace(PLAIN, stop=("x",)))
    default = type(params)()
    assert [getattr(params, name) for name in OPTIONAL] == [getattr(default, name) for name in OPTIONAL]
    assert params.stop == []
    assert (params.logit_bias, params.logprobs, params.prompt_logprobs) == (None, None, None)
    assert params.structured_outputs is None
    assert params.extra_args is None
    assert params.detokenize is False
    assert params.output_kind is RequestOutputKind.DELTA


@pytest.mark.parametrize(
    ("structured", "field", "value"),
    [
        (Structured("json", '{"type": "object"}'), "json", '{"type": "object"}'),
        (Structured("json_object"), "json_object", True),
        (Structured("regex", "a+"), "regex", "a+"),
        (Structured("choice", ("yes", "no")), "choice", ["yes", "no"]),
        (Structured("grammar", "root ::= 'a'"), "grammar", "root ::= 'a'"),
        (Structured("structural_tag", '{"type": "x"}'), "structural_tag", '{"type": "x"}'),
    ],
    ids=lambda value: value.kind if isinstance(value, Structured) else "",
)
def test_a_constraint_is_the_one_of_its_kind(structured: Structured, field: str, value: object) -> None:
    found = vllm_params(replace(PLAIN, structured=structured)).structured_outputs
    assert found is not None
    kinds = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
    assert {kind: got for kind in kinds if (got := getattr(found, kind))} == {field: value}


def test_a_shaping_goes_along_with_what_differs_from_the_defaults() -> None:
    shaping = Shaping(typical_p=0.5, no_repeat_ngram_size=3)
    found = vllm_params(replace(PLAIN, shaping=shaping)).extra_args
    assert found == {SHAPING: {"typical_p": 0.5, "no_repeat_ngram_size": 3}}


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"top_p": 0.9}, 0.9),
        ({"top_p": 0.9, "top_k": 0}, 0.9),
        ({"top_p": 0.9, "top_k": 40}, None),
        ({"top_p": 1.0}, None),
        ({}, None),
    ],
)
def test_the_sort_free_top_p_gets_what_no_top_k_comes_before(asked: dict[str, Any], given: float | None) -> None:
    params = vllm_params(replace(PLAIN, **asked), sort_free_top_p=True)
    assert params.extra_args == (None if given is None else {TOP_P: given})
    assert params.top_p == (1.0 if given is not None else asked.get("top_p", 1.0))
    assert vllm_params(replace(PLAIN, **asked)).extra_args is None


def test_a_shaping_reaches_the_engines_process_as_it_was() -> None:
    shaping = Shaping(dry_multiplier=0.75, dry_sequence_breakers=((198,), (2, 3)), mirostat=2)
    sent = MsgpackEncoder().encode(vllm_params(replace(PLAIN, shaping=shaping)))
    params = MsgpackDecoder(VllmSamplingParams).decode(sent)
    assert params.extra_args is not None
    assert Shaping.from_wire(params.extra_args[SHAPING]) == shaping


def config_of(processors: list[str] | None = None, speculative: Any = None) -> Any:
    model = SimpleNamespace(logits_processors=processors)
    return SimpleNamespace(model_config=model, speculative_config=speculative)


@pytest.mark.parametrize(
    ("given", "expected"), [(None, [PROCESSOR]), ([], [PROCESSOR]), (["their:own"], ["their:own", PROCESSOR])]
)
def test_the_samplers_come_after_the_operators_own_processors(given: list[str] | None, expected: list[str]) -> None:
    settings = config_of(given)
    assert load_samplers(settings)
    assert settings.model_config.logits_processors == expected


@pytest.mark.parametrize("given", [None, ["their:own"]])
def test_beside_speculative_decoding_nothing_is_loaded(given: list[str] | None) -> None:
    settings = config_of(given, speculative=object())
    assert not load_samplers(settings)
    assert settings.model_config.logits_processors == given


def test_both_of_vllms_runners_find_the_samplers_by_their_name() -> None:
    assert ShapingProcessor in cached_load_custom_logitsprocs((PROCESSOR,))
    build_custom_logits_processors_params_validator([PROCESSOR])  # raises for a class that is not of the V2 kind


def test_the_sampled_token_comes_first_and_the_likeliest_after_it() -> None:
    found = sample_logprobs(
        flat([(7, -2.0, 3), (5, -0.25, 1), (6, -1.0, 2)], [(5, -0.5, 1), (5, -0.5, 1), (9, -3.0, 2)])
    )
    assert found == [
        TokenLogprob(7, -2.0, 3, ((5, -0.25), (6, -1.0))),
        TokenLogprob(5, -0.5, 1, ((5, -0.5), (9, -3.0))),
    ]


def test_without_alternatives_there_is_the_token_alone() -> None:
    assert sample_logprobs(flat([(7, -2.0, 3)])) == [TokenLogprob(7, -2.0, 3)]
    assert sample_logprobs(flat()) == []


@pytest.mark.parametrize("impossible", [-math.inf, math.nan, -1e30, -9999.5])
def test_a_log_probability_that_json_cannot_say_is_openais_lowest(impossible: float) -> None:
    (entry,) = sample_logprobs(flat([(7, impossible, 49152), (5, 0.0, 1), (6, impossible, 2)]))
    assert entry == TokenLogprob(7, LOWEST, 49152, ((5, 0.0), (6, LOWEST)))
    assert LOWEST == -9999.0
    assert json.loads(json.dumps(entry, allow_nan=False)) == [7, -9999.0, 49152, [[5, 0.0], [6, -9999.0]]]
    (_, of_prompt) = prompt_logprobs(flat([], [(7, impossible, 2)]), [3, 7])
    assert of_prompt == TokenLogprob(7, LOWEST, 2)


def test_a_prompts_first_token_has_none_and_no_more_come_than_the_prompt_has() -> None:
    given = flat([], [(4, -1.0, 1)], [(5, -2.0, 2), (8, -0.5, 1)], [(6, -3.0, 1)])
    expected = [None, TokenLogprob(4, -1.0, 1), TokenLogprob(5, -2.0, 2, ((8, -0.5),))]
    assert prompt_logprobs(given, [3, 4, 5]) == expected
