"""What a request leaves out, or sends as null, is the model's or the protocol's default."""

from typing import Any

import pytest

from sampling.params import SamplingParams
from server.request import FinishReason
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion

NULLABLE = (
    "n", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "stop", "stop_token_ids", "ignore_eos", "stream",
    "stream_options", "user",
)  # fmt: skip


async def params_of(site: Served[FakeEngine], path: str, payload: dict[str, Any]) -> SamplingParams:
    begun = len(site.engine.sequences)
    exchange = site.open(path, payload)
    sequence = await site.engine.sequence(begun)
    sequence.say("Hi", finish=FinishReason.STOP)
    await exchange
    assert exchange.status == 200
    return sequence.request.params


@pytest.mark.parametrize("name", [name for name in NULLABLE if name != "max_tokens"])
async def test_null_is_the_same_as_nothing(site: Served[FakeEngine], name: str) -> None:
    for path, payload in ((CHAT, chat()), (COMPLETIONS, completion())):
        assert await params_of(site, path, payload | {name: None}) == await params_of(site, path, payload)


async def test_the_models_generation_config_fills_what_is_left_out(site: Served[FakeEngine]) -> None:
    params = await params_of(site, CHAT, chat())
    assert (params.temperature, params.top_p) == (0.2, 0.9)
    params = await params_of(site, CHAT, chat(temperature=0, top_p=1))
    assert (params.temperature, params.top_p) == (0, 1)


async def test_a_chat_may_fill_the_context_and_a_completion_has_16_tokens(site: Served[FakeEngine]) -> None:
    context = site.engine.model.max_model_len
    prompt = 1
    assert (await params_of(site, COMPLETIONS, completion(prompt=[5] * prompt))).max_tokens == 16
    assert (await params_of(site, COMPLETIONS, completion(prompt=[5] * prompt, max_tokens=None))).max_tokens == (
        context - prompt
    )
    asked = await site.post("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})
    assert (await params_of(site, CHAT, chat())).max_tokens == context - asked.json["count"]
