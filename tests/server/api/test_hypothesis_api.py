"""Whatever a body holds, it is answered: with a result or with an error that is the client's, never with ours."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.engine.scripted_engine import ScriptedEngine
from tests.server.conftest import MakeScripted
from tests.support.asgi import Exchange
from tests.support.site import CHAT, COMPLETIONS, MODEL, Served, chat, completion, serving
from tests.support.sse import DONE

NUMBERS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 49151, 49152]),
    st.floats(-3, 3),
    st.sampled_from([1e308, -0.0, 1e-320]),
)
TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from([MODEL, "user", "text", "<|im_start|>", "🙂\x00\u2028", "\ufeff"])
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
KEYS = st.one_of(TEXTS, st.sampled_from(["role", "content", "type", "text", "include_usage", "1", "49152"]))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": TEXTS},
        optional={"name": TEXTS, "tool_calls": st.just([]), "tool_call_id": TEXTS, "reasoning": TEXTS},
    ),
    min_size=1,
    max_size=4,
)
PROMPTS = st.one_of(
    TEXTS,
    st.lists(TEXTS, max_size=3),
    st.lists(st.integers(0, 49151), max_size=8),
    st.lists(st.lists(st.integers(0, 49151), max_size=4), max_size=3),
)

SCHEMAS = st.fixed_dictionaries(
    {"type": st.sampled_from(["object", "array", "string"])},
    optional={"pattern": TEXTS, "maxItems": NUMBERS, "$defs": VALUES, "properties": st.dictionaries(KEYS, VALUES)},
)
TOOLS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": st.fixed_dictionaries(
                {"name": st.sampled_from(["f", "g", "get-weather"])},
                optional={"description": TEXTS, "parameters": SCHEMAS, "strict": st.booleans()},
            ),
        }
    ),
    max_size=3,
)
CHOICES = st.sampled_from(["auto", "none", "required", {"type": "function", "function": {"name": "f"}}])
CONSTRAINTS = st.one_of(
    st.fixed_dictionaries({"json": SCHEMAS}),
    st.fixed_dictionaries({"regex": TEXTS}),
    st.fixed_dictionaries({"choice": st.lists(TEXTS, max_size=3)}),
    st.fixed_dictionaries({"grammar": TEXTS}),
    st.fixed_dictionaries({"json_object": st.booleans()}),
)

SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(1, 4),
    "max_tokens": st.integers(1, 40),
    "min_tokens": st.integers(0, 10),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.01, 1),
    "top_k": st.integers(-1, 50),
    "min_p": st.floats(0, 1),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "repetition_penalty": st.floats(0.1, 10),
    "logit_bias": st.dictionaries(st.integers(0, 49151).map(str), st.floats(-100, 100), max_size=3),
    "stop": st.text(min_size=1, max_size=3) | st.lists(st.sampled_from(["e", " of", "🙂"]), max_size=3),
    "stop_token_ids": st.lists(st.integers(0, 49151), max_size=3),
    "include_stop_str_in_output": st.booleans(),
    "ignore_eos": st.booleans(),
    "skip_special_tokens": st.booleans(),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans(), "continuous_usage_stats": st.booleans()}),
    "user": st.text(),
    "include_timings": st.booleans(),
    "structured_outputs": CONSTRAINTS,
    "prompt_logprobs": st.integers(0, 3),
    "return_token_ids": st.booleans(),
    "priority": st.integers(-5, 5),
    "cache_salt": TEXTS,
    "dry_multiplier": st.floats(0, 100),
    "dry_base": st.floats(1, 10),
    "dry_allowed_length": st.integers(1, 4096),
    "dry_sequence_breakers": st.lists(st.text(min_size=1, max_size=3), max_size=3),
    "no_repeat_ngram_size": st.integers(0, 256),
    "top_n_sigma": st.floats(-1, 100),
    "typical_p": st.floats(0.01, 1),
    "xtc_probability": st.floats(0, 1),
    "xtc_threshold": st.floats(0, 1),
    "dynatemp_range": st.floats(0, 2),
    "dynatemp_exponent": st.floats(0.01, 10),
    "mirostat": st.sampled_from([0, 2]),
    "mirostat_tau": st.floats(0, 100),
    "mirostat_eta": st.floats(0.01, 1),
    "": VALUES,
}
OF_CHAT = SAMPLING | {
    "max_completion_tokens": st.integers(1, 40),
    "tools": TOOLS,
    "tool_choice": CHOICES,
    "parallel_tool_calls": st.booleans(),
    "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}]),
    "logprobs": st.booleans(),
    "top_logprobs": st.integers(0, 3),
    "reasoning_effort": st.sampled_from(["low", "high", None]),
    "chat_template_kwargs": st.dictionaries(st.sampled_from(["enable_thinking", "thinking"]), SCALARS, max_size=2),
}
OF_TEXT = SAMPLING | {
    "best_of": st.just(1),
    "echo": st.booleans(),
    "logprobs": st.integers(0, 3),
    "suffix": st.none(),
}


@st.composite
def fields_of(draw: st.DrawFn, known: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """Some fields as they should be, and perhaps one as it may be."""
    names = draw(st.lists(st.sampled_from(list(known)), max_size=6, unique=True))
    fields = {name: draw(known[name]) for name in ["stream", *names]}
    return fields | draw(st.dictionaries(st.sampled_from(["model", *known]), VALUES, max_size=1))


FUZZED = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
async def played(scripted: MakeScripted) -> AsyncIterator[Served[ScriptedEngine]]:
    async with serving(scripted(max_model_len=256), "chat.tool_parser=hermes", "chat.reasoning_parser=think") as site:
        yield site


def check(exchange: Exchange) -> None:
    assert exchange.complete
    assert exchange.status in (200, 400, 404), (exchange.status, exchange.body)
    if exchange.status != 200:
        assert exchange.error["type"] == "invalid_request_error"
        assert len(exchange.body) < 20_000
    elif exchange.headers["content-type"].startswith("text/event-stream"):
        assert exchange.events[-1] == DONE
        assert not any("error" in event for event in exchange.events[:-1])
    else:
        assert exchange.json["choices"]


async def answered(site: Served[ScriptedEngine], path: str, body: Any) -> None:
    check(await site.post(path, body))
    assert site.engine.in_flight == 0
    assert site.engine.alive


@FUZZED
@given(MESSAGES, fields_of(OF_CHAT))
async def test_any_chat_is_answered(played: Served[ScriptedEngine], messages: Any, fields: dict[str, Any]) -> None:
    await answered(played, CHAT, chat(messages=messages) | fields)


@FUZZED
@given(PROMPTS, fields_of(OF_TEXT))
async def test_any_completion_is_answered(played: Served[ScriptedEngine], prompt: Any, fields: dict[str, Any]) -> None:
    await answered(played, COMPLETIONS, completion(prompt=prompt) | fields)


@FUZZED
@given(VALUES)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize", "/detokenize"])
async def test_any_json_is_answered(played: Served[ScriptedEngine], path: str, value: Any) -> None:
    exchange = await played.post(path, json.dumps(value).encode())
    assert exchange.status in (200, 400, 404)


@FUZZED
@given(st.binary(max_size=40), st.integers(0, 200), st.integers(0, 20))
@pytest.mark.parametrize(("path", "payload"), [(CHAT, chat(stop="x", n=2)), (COMPLETIONS, completion(seed=3))])
async def test_any_damage_to_a_body_is_answered(
    played: Served[ScriptedEngine], path: str, payload: Any, noise: bytes, start: int, cut: int
) -> None:
    raw = json.dumps(payload).encode()
    await answered(played, path, raw[:start] + noise + raw[start + cut :])


@settings(FUZZED, max_examples=30)
@given(st.lists(st.integers(1, 30), max_size=8))
async def test_a_body_may_come_in_any_pieces(played: Served[ScriptedEngine], sizes: list[int]) -> None:
    raw = json.dumps(completion(max_tokens=3)).encode()
    chunks, start = [], 0
    for size in sizes:
        chunks.append(raw[start : start + size])
        start += size
    exchange = await played.send("POST", COMPLETIONS, [*chunks, raw[start:]])
    assert exchange.status == 200
