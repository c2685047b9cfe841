"""Ours in vLLM's shape and back; what vLLM gives for impossible tokens becomes a number that JSON can say."""

import json
import math
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from vllm.logprobs import FlatLogprobs
from vllm.sampling_params import RequestOutputKind

from sampling.logprobs import LOWEST, TokenLogprob
from sampling.params import SamplingParams, Structured
from server.engine.vllm_params import prompt_logprobs, sample_logprobs, vllm_params

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
