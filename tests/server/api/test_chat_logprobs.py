"""Log probabilities, token ids and usage of a chat, and everything else it tells beside the answer."""

import json
from typing import Any

import pytest

from sampling.logprobs import LOWEST, TokenLogprob
from server.request import FinishReason
from tests.conformance.replay import logprob_of
from tests.server.api.test_chat_messages import submitted
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion
from tests.support.sse import DONE
from tests.support.waiting import until

BOTH = pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "text"])
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
TEXT = "Paris 🫠 龜!"


def payload(path: str, **fields: Any) -> dict[str, Any]:
    return chat(**fields) if path == CHAT else completion(**fields)


def ids_of(site: Served[FakeEngine], text: str = TEXT) -> list[int]:
    return site.engine.model.tokenizer.encode(text, add_special_tokens=False)


def push_all(sequence: FakeSequence, ids: list[int], alternatives: int = 0) -> None:
    """Token by token, then the end of sequence."""
    for token_id in ids:
        sequence.push(token_id, logprobs=[logprob_of(token_id, alternatives)])
    sequence.end()


def entries_of(exchange: Exchange, stream: bool) -> list[dict[str, Any]]:
    events = exchange.events[:-1] if stream else [exchange.json]
    found = [choice["logprobs"] for event in events for choice in event["choices"]]
    assert all(logprobs is None or set(logprobs) == {"content", "refusal"} for logprobs in found)
    return [entry for logprobs in found if logprobs for entry in logprobs["content"]]


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [
        ({}, None),
        ({"logprobs": None, "top_logprobs": None}, None),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": None}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
    ids=repr,
)
async def test_as_many_alternatives_are_asked_for_as_the_client_wants(
    site: Served[FakeEngine], fields: dict[str, Any], logprobs: int | None
) -> None:
    assert (await submitted(site, chat(**fields))).params.logprobs == logprobs


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"top_logprobs": 1, "logprobs": False}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 1.0, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": True, "logprobs": True}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": "true"}, "logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
    ],
    ids=repr,
)
async def test_what_does_not_go_together_is_named(site: Served[FakeEngine], fields: dict[str, Any], param: str) -> None:
    answer = await site.post(CHAT, chat(**fields))
    assert (answer.status, answer.error["param"]) == (400, param)
    assert site.engine.sequences == []


@STREAM
@pytest.mark.parametrize("top", [0, 3])
async def test_each_token_has_its_log_probability_its_bytes_and_its_alternatives(
    site: Served[FakeEngine], stream: bool, top: int
) -> None:
    ids = ids_of(site)
    exchange = site.open(CHAT, chat(stream=stream, logprobs=True, top_logprobs=top))
    push_all(await site.engine.sequence(), ids, top)
    entries = entries_of(await exchange, stream)
    assert [entry["logprob"] for entry in entries] == [-1 / (token_id + 1) for token_id in ids]
    assert b"".join(bytes(entry["bytes"]) for entry in entries) == TEXT.encode()
    assert all(bytes(entry["bytes"]).decode(errors="replace") == entry["token"] for entry in entries)
    assert any("\ufffd" in entry["token"] for entry in entries), "no token splits a character"
    assert [len(entry["top_logprobs"]) for entry in entries] == [top] * len(ids)
    if top:
        first = entries[0]["top_logprobs"][0]
        assert set(first) == {"token", "logprob", "bytes"}
        assert bytes(first["bytes"]) == bytes(entries[0]["bytes"])


async def test_log_probabilities_come_with_their_text(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True, logprobs=True))
    push_all(await site.engine.sequence(), ids_of(site))
    text, spelt = "", b""
    for event in (await exchange).events[:-1]:
        (choice,) = event["choices"]
        text += choice["delta"].get("content", "")
        spelt += b"".join(bytes(entry["bytes"]) for entry in (choice["logprobs"] or {"content": []})["content"])
        assert spelt.decode(errors="ignore") == text
    assert text == TEXT


@STREAM
async def test_what_a_stop_string_hides_has_no_log_probabilities(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(CHAT, chat(stream=stream, logprobs=True, stop=["🫠"]))
    sequence = await site.engine.sequence()
    push_all(sequence, ids_of(site))
    entries = entries_of(await exchange, stream)
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode(errors="ignore").rstrip() == "Paris"


@STREAM
async def test_an_impossible_token_is_a_number_and_not_a_failure(site: Served[FakeEngine], stream: bool) -> None:
    """Seen as a 500: out of range float values are not JSON compliant."""
    exchange = site.open(CHAT, chat(stream=stream, logprobs=True, top_logprobs=1))
    entry = TokenLogprob(504, LOWEST, 49152, ((505, LOWEST),))
    (await site.engine.sequence()).push(504, logprobs=[entry], finish=FinishReason.LENGTH)
    (found,) = entries_of(await exchange, stream)
    assert exchange.status == 200
    assert (found["logprob"], found["top_logprobs"][0]["logprob"]) == (-9999.0, -9999.0)


async def test_an_answer_without_text_has_an_empty_list(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(logprobs=True))
    (await site.engine.sequence()).end()
    assert (await exchange).json["choices"][0]["logprobs"] == {"content": [], "refusal": None}


async def test_without_being_asked_for_nothing_is_told(site: Served[FakeEngine]) -> None:
    for index, stream in enumerate((True, False)):
        exchange = site.open(CHAT, chat(stream=stream))
        push_all(await site.engine.sequence(index), ids_of(site))
        await exchange
        for event in exchange.events[:-1] if stream else [exchange.json]:
            assert set(event) <= {"id", "object", "created", "model", "choices", "usage"}
            (choice,) = event["choices"]
            assert set(choice) == {"index", "delta" if stream else "message", "logprobs", "finish_reason"}
            assert choice["logprobs"] is None


# ---- token ids


@BOTH
@STREAM
async def test_token_ids_are_those_of_the_prompt_and_all_of_the_answer(
    site: Served[FakeEngine], path: str, stream: bool
) -> None:
    ids = ids_of(site)
    exchange = site.open(path, payload(path, stream=stream, return_token_ids=True, n=2))
    second = await site.engine.sequence(1)
    first = site.engine.sequences[0]
    push_all(first, ids)
    push_all(second, ids[:3])
    await exchange
    events = exchange.events[:-1] if stream else [exchange.json]
    told: dict[int, list[int]] = {0: [], 1: []}
    for event in events:
        for choice in event["choices"]:
            told[choice["index"]] += choice["token_ids"]
    assert told == {0: [*ids, 2], 1: [*ids[:3], 2]}
    prompt = list(first.request.prompt_token_ids)
    if path == CHAT:
        assert events[0]["prompt_token_ids"] == prompt
        assert not any("prompt_token_ids" in event for event in events[1:])
    else:
        prompts = [
            choice["prompt_token_ids"] for e in events for choice in e["choices"] if "prompt_token_ids" in choice
        ]
        assert prompts == [prompt] * 2


@STREAM
async def test_a_stream_without_text_tells_its_token_ids_too(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(CHAT, chat(stream=stream, return_token_ids=True))
    (await site.engine.sequence()).end()
    await exchange
    event = exchange.events[0] if stream else exchange.json
    assert event["choices"][0]["token_ids"] == [2]
    assert event["prompt_token_ids"]


@BOTH
@pytest.mark.parametrize("field", ["return_token_ids", "prompt_logprobs", "priority", "cache_salt", "stream_options"])
async def test_null_is_the_default(site: Served[FakeEngine], path: str, field: str) -> None:
    plain = await submitted(site, payload(path), path)
    null = await submitted(site, payload(path, **{field: None}), path)
    assert (null.params, null.priority, null.cache_salt) == (plain.params, plain.priority, plain.cache_salt)


# ---- the prompt's log probabilities


@BOTH
@pytest.mark.parametrize("asked", [0, 2])
async def test_the_prompts_log_probabilities_are_told_by_token_id(
    site: Served[FakeEngine], path: str, asked: int
) -> None:
    exchange = site.open(path, payload(path, prompt_logprobs=asked))
    sequence = await site.engine.sequence()
    assert sequence.request.params.prompt_logprobs == asked
    prompt = list(sequence.request.prompt_token_ids)
    entries = [None, *(logprob_of(token_id, asked) for token_id in prompt[1:])]
    sequence.push(*ids_of(site), prompt_logprobs=entries)
    sequence.end()
    body = (await exchange).json
    found = body["prompt_logprobs"] if path == CHAT else body["choices"][0]["prompt_logprobs"]
    assert len(found) == len(prompt)
    assert found[0] is None
    for token_id, alternatives in zip(prompt[1:], found[1:], strict=True):
        assert str(token_id) in alternatives
        assert len(alternatives) == max(asked, 1)
        assert all(set(entry) == {"logprob", "rank", "decoded_token"} for entry in alternatives.values())


# ---- usage


@BOTH
@STREAM
async def test_cached_tokens_are_in_the_usage_once_per_prompt(
    site: Served[FakeEngine], path: str, stream: bool
) -> None:
    fields: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}
    exchange = site.open(path, payload(path, stream=stream, n=2, **fields))
    await site.engine.sequence(1)
    for sequence in site.engine.sequences:
        sequence.push(504, cached_tokens=16)
        sequence.end()
    await exchange
    usage = exchange.events[-2]["usage"] if stream else exchange.json["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 16}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert usage["completion_tokens"] == 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + 4


@BOTH
async def test_usage_so_far_is_in_each_chunk_when_asked_for(site: Served[FakeEngine], path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    exchange = site.open(path, payload(path, stream=True, stream_options=options))
    sequence = await site.engine.sequence()
    for count, token_id in enumerate(ids_of(site, "The capital of France"), 1):
        sequence.push(token_id)
        await until(lambda count=count: len(exchange.writes) == count)  # type: ignore[misc]
    sequence.end()
    *chunks, last, done = (await exchange).events
    assert done == DONE
    prompt = len(sequence.request.prompt_token_ids)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [1, 2, 3, 4, 5]
    assert all(chunk["usage"]["prompt_tokens"] == prompt for chunk in chunks)
    assert all(chunk["usage"]["total_tokens"] == prompt + count for chunk, count in zip(chunks, counts, strict=True))
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 5)


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"continuous_usage_stats": True},
        {"include_usage": False, "continuous_usage_stats": True},
        {"include_usage": None, "continuous_usage_stats": None},
        None,
    ],
    ids=repr,
)
async def test_usage_so_far_needs_usage(site: Served[FakeEngine], path: str, options: Any) -> None:
    exchange = site.open(path, payload(path, stream=True, stream_options=options))
    push_all(await site.engine.sequence(), ids_of(site))
    assert not any("usage" in event for event in (await exchange).events[:-1])


async def test_a_continued_usage_tells_of_thoughts_and_cached_tokens_as_the_last_one_does(
    site: Served[FakeEngine],
) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    exchange = site.open(CHAT, chat(stream=True, stream_options=options))
    sequence = await site.engine.sequence()
    sequence.push(504, cached_tokens=16)
    sequence.end()
    *_, chunk, last, _ = (await exchange).events
    assert json.dumps(chunk["usage"]) == json.dumps(last["usage"])
