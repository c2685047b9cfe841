"""Legal extremes do not hurt the engine: each is served, and a tiny request works after it."""

import asyncio
from typing import Any

import pytest

from tests.integration.http import COMPLETIONS, answer, completion, healthy, name, post
from tests.integration.live import LiveServer, until

HUGE = 2**63
EVEN = "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3"

LEGAL_FIELDS: list[dict[str, Any]] = [
    {"seed": -HUGE},
    {"seed": HUGE - 1},
    {"seed": HUGE - 1, "n": 3, "temperature": 1},
    {"seed": -1},
    {"seed": 0},
    {"top_k": 2**31},
    {"top_k": 10**18},
    {"top_k": 1, "temperature": 1},
    {"top_k": 49151, "temperature": 1},
    {"top_k": -1},
    {"temperature": 1e-9},
    {"temperature": 5e-324},
    {"temperature": 2},
    {"temperature": 2, "top_p": 1e-9, "min_p": 1, "top_k": 1},
    {"temperature": 1, "top_p": 5e-324},
    {"temperature": 1, "min_p": 1},
    {"temperature": 1, "min_p": 5e-324},
    {"repetition_penalty": 1e-6},
    {"repetition_penalty": 5e-324},
    {"repetition_penalty": 5e-324, "temperature": 1, "top_p": 0.5},
    {"repetition_penalty": 10, "temperature": 2},
    {"presence_penalty": 2, "frequency_penalty": -2, "temperature": 1},
    {"presence_penalty": -2, "frequency_penalty": 2},
    {"logit_bias": {"0": 100, "49151": -100}},
    {"logit_bias": {str(i): (-100) ** (i % 2) for i in range(1024)}},
    {"logit_bias": {str(i): 100 for i in range(1024)}, "temperature": 2, "repetition_penalty": 1e-6},
    {"logit_bias": {"7": 1, "07": 2}},
    {"stop_token_ids": list(range(112))},
    {"stop_token_ids": list(range(5, 117)), "min_tokens": 3, "max_tokens": 3},
    {"stop_token_ids": [5] * 112},
    {"stop": [f"{i} " * 3500 for i in range(16)]},
    {"stop": ["a"] * 16},
    {"stop": "\x00"},
    {"min_tokens": 3, "max_tokens": 3},
    {"ignore_eos": True, "min_tokens": 3, "max_tokens": 3},
    {"n": 128, "max_tokens": 1},
    {"user": "x" * 1024},
    {"skip_special_tokens": False},
    {"unheard_of": {"deep": [1, 2, 3]}},
]

LEGAL_PROMPTS: list[Any] = [
    [7] * 2047,
    [[7] * 300] * 4,
    [[5]] * 128,
    [0],
    [49151],
    "\x00",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u202e \ufffd",
    "<|im_end|>" * 20,
    "a" * 4_000,
]


@pytest.mark.parametrize("fields", LEGAL_FIELDS, ids=name)
async def test_a_legal_extreme_is_served(live: LiveServer, fields: dict[str, Any]) -> None:
    sample = await post(live, COMPLETIONS, completion(**{"max_tokens": 3, **fields}))
    assert sample.ok, sample.detail
    await healthy(live)


@pytest.mark.parametrize("prompt", LEGAL_PROMPTS, ids=name)
async def test_a_legal_but_odd_prompt_is_served(live: LiveServer, prompt: Any) -> None:
    sample = await post(live, COMPLETIONS, completion(prompt, max_tokens=1))
    assert sample.ok, sample.detail
    await healthy(live)


async def test_the_extremes_do_not_touch_a_neighbour(live: LiveServer) -> None:
    """All legal extremes at once, in one batch with a plain request."""
    quiet = await post(live, COMPLETIONS, completion(EVEN, max_tokens=16))
    fields = [{"max_tokens": 8, **extreme} for extreme in LEGAL_FIELDS if extreme.get("n", 1) < 100]
    together = await asyncio.gather(
        post(live, COMPLETIONS, completion(EVEN, max_tokens=16)),
        *(post(live, COMPLETIONS, completion(**extreme)) for extreme in fields),
    )
    assert [sample.status for sample in together] == [200] * len(together)
    assert answer(together[0])["choices"] == answer(quiet)["choices"]
    await until(live.idle, "the engine is idle")
