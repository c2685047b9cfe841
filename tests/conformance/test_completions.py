"""A completion is the same however the engine's steps cut it, and the same streamed and whole."""

from typing import Any

import pytest

from server.engine.protocol import ModelInfo
from server.request import FinishReason
from tests.conformance import normal
from tests.conformance.cases import EMOJI, ENGLISH, MANY_TONGUES, Case
from tests.conformance.normal import Normal, Said
from tests.conformance.replay import END_OF_SEQUENCE, Partition, ReplayEngine, partitions
from tests.support.site import COMPLETIONS, Served, completion, serving

PROMPT = "Say 🫠: "
ALL = {"logprobs": 2, "return_token_ids": True}

CASES = [
    Case("plain text", ENGLISH, ENGLISH),
    Case("many tongues", MANY_TONGUES, MANY_TONGUES),
    Case("emoji", EMOJI, EMOJI),
    Case("cut by the token limit", ENGLISH, ENGLISH, finish="length", ends=FinishReason.LENGTH),
    Case("two choices", ENGLISH, ENGLISH, {"n": 2}),
    Case("an echo", EMOJI, PROMPT + EMOJI, {"echo": True}),
    Case("log probabilities", EMOJI, EMOJI, ALL),
    Case("log probabilities alone", ENGLISH, ENGLISH, {"logprobs": 0}),
    Case("an echo with log probabilities", EMOJI, PROMPT + EMOJI, {"echo": True} | ALL),
    Case("token ids", EMOJI, EMOJI, {"return_token_ids": True}),
    Case("a stop string", ENGLISH, "The capital of ", {"stop": ["France is", "never"]}),
    Case("a stop kept", ENGLISH, "The capital of France is", {"stop": "France is", "include_stop_str_in_output": True}),
    Case("a stop of emoji", EMOJI, "ok 👩‍👩‍👧‍👦 🇫🇷 ", {"stop": ["🫠🥹"]} | ALL),
    Case("a stop in many tongues", MANY_TONGUES, "Привет, мир! 안녕하세요 — ", {"stop": ["你好"]} | ALL),
    Case("a stop that almost comes", ENGLISH, ENGLISH, {"stop": ["Paris, of curse", "Anything elsewhere"]} | ALL),
]


async def answers(site: Served[ReplayEngine], case: Case, partition: Partition) -> tuple[Normal, Normal]:
    """Streamed, and whole."""
    site.engine.partition, site.engine.finish = partition, case.ends
    asks = completion(prompt=PROMPT, **case.asks)
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = await site.post(COMPLETIONS, asks | options)
    whole = await site.post(COMPLETIONS, asks)
    assert (streamed.status, whole.status) == (200, 200), whole.body
    return normal.of_completion_stream(streamed.events), normal.of_completion_body(whole.json)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_completion_is_the_same_however_it_is_cut(model: ModelInfo, case: Case) -> None:
    ids = model.tokenizer.encode(case.says, add_special_tokens=False)
    if case.finish != "length":
        ids.append(END_OF_SEQUENCE)
    async with serving(ReplayEngine(model), "telemetry.log_level=error") as site:
        for number, partition in enumerate(partitions(ids, seed=len(ids))):
            streamed, whole = await answers(site, case, partition)
            if number == 0:
                expected = whole
                assert len(expected.choices) == case.asks.get("n", 1)
                for said in expected.choices.values():
                    check(said, ids, model, case)
            assert whole == expected, partition
            assert streamed == expected, partition


def check(said: Said, ids: list[int], model: ModelInfo, case: Case) -> None:
    """That it is the right answer, not only always the same one."""
    assert (said.content, said.finish) == (case.content, case.finish)
    if case.asks.get("return_token_ids"):
        assert said.token_ids == ids[: len(said.token_ids)]
        if "stop" not in case.asks:
            assert said.token_ids == ids
    if "logprobs" in case.asks and "stop" not in case.asks:
        prompt = model.tokenizer.encode(PROMPT) if case.asks.get("echo") else []
        assert len(said.logprobs) == len(prompt) + len(ids) - (case.finish == "stop")
