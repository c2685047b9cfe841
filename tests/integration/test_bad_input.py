"""Bad input never reaches the engine, and legal extremes do not hurt it: a tiny request works after each."""

import json
from typing import Any

import pytest

from tests.integration.http import CHAT, COMPLETIONS, MODEL, answer, chat, completion, post
from tests.integration.live import LiveServer, until

HUGE = 2**63
BEYOND = 10**40

BAD_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("logit_bias", {"logit_bias": {"1000000": 1}}),
    ("logit_bias", {"logit_bias": {"49152": 1}}),  # the first id past the vocabulary
    ("logit_bias", {"logit_bias": {"-1": 1}}),
    ("logit_bias", {"logit_bias": {"5": 101}}),
    ("logit_bias", {"logit_bias": {"five": 1}}),
    ("logit_bias", {"logit_bias": {str(i): 1 for i in range(2000)}}),
    ("stop_token_ids", {"stop_token_ids": [10**6]}),
    ("stop_token_ids", {"stop_token_ids": [-1]}),
    ("stop_token_ids", {"stop_token_ids": [2**40]}),
    ("stop_token_ids", {"stop_token_ids": list(range(129))}),
    ("stop", {"stop": [str(i) for i in range(17)]}),
    ("stop", {"stop": ""}),
    ("stop", {"stop": [3]}),
    ("top_k", {"top_k": BEYOND}),
    ("top_k", {"top_k": -2}),
    ("top_k", {"top_k": 1.5}),
    ("top_p", {"top_p": 0}),
    ("top_p", {"top_p": 1.01}),
    ("min_p", {"min_p": -0.1}),
    ("min_p", {"min_p": 2}),
    ("seed", {"seed": HUGE}),
    ("seed", {"seed": -HUGE - 1}),
    ("temperature", {"temperature": -1}),
    ("temperature", {"temperature": 1e308}),
    ("temperature", {"temperature": "hot"}),
    ("presence_penalty", {"presence_penalty": 2.1}),
    ("frequency_penalty", {"frequency_penalty": -3}),
    ("repetition_penalty", {"repetition_penalty": 0}),
    ("repetition_penalty", {"repetition_penalty": 1e300}),
    ("n", {"n": 16384}),
    ("n", {"n": 0}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": -5}),
    ("max_tokens", {"max_tokens": 10**9}),
    ("max_tokens", {"max_tokens": BEYOND}),
    ("min_tokens", {"min_tokens": -1}),
    ("min_tokens", {"min_tokens": 10**12, "max_tokens": None}),
    ("min_tokens", {"min_tokens": 5, "max_tokens": 4}),
    ("stream", {"stream": "yes"}),
    ("ignore_eos", {"ignore_eos": 1}),
    ("model", {"model": "another"}),
    ("model", {"model": None}),
]

BAD_PROMPTS: list[Any] = [
    [-1],
    [49152],
    [2**40],
    [5, BEYOND],
    [5, 1.5],
    [5, "five"],
    [5, None],
    [5, True],
    [],
    "",
    [[]],
    [[5], []],
    ["fine", ""],
    [""],
    [[5], [49152]],
    None,
    {"text": "no"},
    [7] * 2048,  # the whole context, without room for a token
    [7] * 5000,
    "word " * 5000,
    [[5]] * 129,
    ["five"] * 129,
]

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
    {"stop_token_ids": list(range(128))},
    {"stop_token_ids": [5] * 128, "min_tokens": 3, "max_tokens": 3},
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
    "a" * 10_000,
]


def name(value: Any) -> str:
    return json.dumps(value)[:48]


async def healthy(live: LiveServer) -> None:
    sample = await post(live, COMPLETIONS, completion(max_tokens=1))
    assert sample.ok, sample.detail
    assert live.services.engine.alive


async def refused(live: LiveServer, path: str, body: dict[str, Any] | bytes) -> dict[str, Any]:
    """The error of a request that is refused as the client's fault before the engine hears of it."""
    before = submitted(live)
    sample = await post(live, path, body)
    assert sample.status in (400, 404), (sample.status, sample.detail)
    envelope = answer(sample)
    assert set(envelope) == {"error"}
    error = envelope["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert submitted(live) == before
    assert live.idle()
    await healthy(live)
    assert isinstance(error, dict)
    return error


def submitted(live: LiveServer) -> int:
    """Prompt tokens that have gone to the engine, as its own input processor counts requests."""
    return int(live.services.metrics.tokens["prompt"])


@pytest.mark.parametrize("param, fields", BAD_FIELDS, ids=name)
async def test_a_bad_field_is_named_and_refused(live: LiveServer, param: str, fields: dict[str, Any]) -> None:
    for path, body in ((CHAT, chat), (COMPLETIONS, completion)):
        error = await refused(live, path, body(**{"max_tokens": 2, **fields}))
        assert error["param"] is not None
        assert error["param"].split(".")[0] == param


@pytest.mark.parametrize("prompt", BAD_PROMPTS, ids=name)
async def test_a_bad_prompt_is_refused(live: LiveServer, prompt: Any) -> None:
    error = await refused(live, COMPLETIONS, completion(prompt, max_tokens=2))
    assert error["param"] is not None
    assert error["param"].split(".")[0] in ("prompt", "n", "max_tokens")


@pytest.mark.parametrize("messages", [[], None, "hello", [{}], [{"role": "king", "content": "x"}], [5]], ids=name)
async def test_bad_messages_are_refused(live: LiveServer, messages: Any) -> None:
    error = await refused(live, CHAT, {"model": MODEL, "messages": messages})
    assert error["param"].split(".")[0] == "messages"


async def test_a_conversation_longer_than_the_context_is_refused(live: LiveServer) -> None:
    error = await refused(live, CHAT, chat("word " * 5000, max_tokens=2))
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")


async def test_what_is_not_there_yet_is_refused_rather_than_ignored(live: LiveServer) -> None:
    error = await refused(live, COMPLETIONS, completion(echo=True, max_tokens=1))
    assert (error["param"], error["code"]) == ("echo", "unsupported_parameter")
    await refused(live, COMPLETIONS, completion(echo=True, max_tokens=0))
    error = await refused(live, CHAT, chat(tools=[{"type": "function", "function": {"name": "f"}}]))
    assert error["param"] == "tools"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"model": "smollm2-135m", "prompt": "\\ud800"}',
        b'{"model": "smollm2-135m", "prompt": "\xed\xa0\x80"}',
        b'{"model": "smollm2-135m", "prompt": "x", "temperature": NaN}',
        b'{"model": "smollm2-135m", "prompt": "x", "temperature": 1e999}',
        b'{"model": "smollm2-135m", "prompt": "x", "top_p": -Infinity}',
        b'{"model": "smollm2-135m", "prompt": "x", "logit_bias": {"5": NaN}}',
        b'{"model": "smollm2-135m", "prompt": "x", "unheard_of": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "smollm2-135m", "prompt": ' + b"9" * 10_000 + b"}",
        b'{"model": "smollm2-135m", "prompt": "x", "seed": ' + b"9" * 10_000 + b"}",
    ],
    ids=lambda raw: repr(raw[:70]),
)
async def test_a_malformed_body_is_refused(live: LiveServer, raw: bytes) -> None:
    await refused(live, COMPLETIONS, raw)


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
    import asyncio

    quiet = await post(live, COMPLETIONS, completion("1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3", max_tokens=16))
    fields = [{"max_tokens": 8, **extreme} for extreme in LEGAL_FIELDS if extreme.get("n", 1) < 100]
    together = await asyncio.gather(
        post(live, COMPLETIONS, completion("1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3", max_tokens=16)),
        *(post(live, COMPLETIONS, completion(**extreme)) for extreme in fields),
    )
    assert [sample.status for sample in together] == [200] * len(together)
    assert answer(together[0])["choices"] == answer(quiet)["choices"]
    await until(live.idle, "the engine is idle")
