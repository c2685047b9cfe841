"""Bad input is refused before the engine hears of it, and the parameter is named."""

from collections.abc import Iterator
from typing import Any

import pytest

from server.engine.protocol import Handle, OnReleased, OnStep
from server.request import EngineRequest
from tests.integration.http import (
    CHAT,
    COMPLETIONS,
    HEALTHY_PROMPT,
    MODEL,
    answer,
    chat,
    completion,
    healthy,
    name,
    post,
)
from tests.integration.live import LiveServer

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
    ("stop_token_ids", {"stop_token_ids": list(range(113))}),
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


@pytest.fixture(autouse=True)
def only_healthy_requests_reach_the_engine(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    prompts: list[list[int]] = []
    submit = live.adapter.submit

    def counted(request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> Handle:
        prompts.append(list(request.prompt_token_ids))
        return submit(request, on_step, on_released)  # type: ignore[no-any-return]

    monkeypatch.setattr(live.adapter, "submit", counted)
    yield
    healthy_prompt = live.engine.model.tokenizer.encode(HEALTHY_PROMPT)
    assert all(prompt == healthy_prompt for prompt in prompts)


async def refused(live: LiveServer, path: str, body: dict[str, Any] | bytes) -> dict[str, Any]:
    """The error of a request that is the client's fault; the engine is none the worse for it."""
    sample = await post(live, path, body)
    assert sample.status in (400, 404), (sample.status, sample.detail)
    envelope = answer(sample)
    assert set(envelope) == {"error"}
    error = envelope["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    await healthy(live)
    assert isinstance(error, dict)
    return error


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
    error = await refused(live, COMPLETIONS, completion(suffix="x", max_tokens=1))
    assert (error["param"], error["code"]) == ("suffix", "unsupported_parameter")
    await refused(live, COMPLETIONS, completion(echo=True, max_tokens=0))
    error = await refused(live, CHAT, chat(functions=[{"name": "f"}]))
    assert (error["param"], error["code"]) == ("functions", "unsupported_parameter")


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
