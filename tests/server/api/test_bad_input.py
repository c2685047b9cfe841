"""What bad input gets: a 4xx in OpenAI's envelope that names the parameter, and nothing reaches the engine."""

import json
from typing import Any

import pytest

from server.request import FinishReason
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, MODEL, Served, chat, completion

BOTH = pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "text"])


def payload(path: str, **fields: Any) -> dict[str, Any]:
    return chat(**fields) if path == CHAT else completion(**fields)


async def refused(site: Served[FakeEngine], path: str, body: Any, status: int = 400) -> dict[str, Any]:
    answer = await site.post(path, body)
    assert answer.status == status, answer.body
    assert answer.headers["x-request-id"].startswith("req-")
    assert answer.complete
    assert site.engine.sequences == []
    assert site.idle
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["message"]
    return answer.error


NOT_JSON = {
    "nothing": b"",
    "blanks": b" \n",
    "half": b'{"model": "smollm2-135m"',
    "trailing": b"{} {}",
    "trailing comma": b'{"model": "x",}',
    "single quotes": b"{'model': 'x'}",
    "bare word": b"hello",
    "bom": b"\xef\xbb\xbf{}",
    "utf-16": '{"model": "x"}'.encode("utf-16"),
    "utf-32": '{"model": "x"}'.encode("utf-32"),
    "latin-1": '{"model": "é"}'.encode("latin-1"),
    "nul": b'{"model": "x"}\x00',
    "raw control": b'{"model": "\x01"}',
    "lone surrogate": b'{"model": "\\ud800"}',
    "lone trailing surrogate": b'{"model": "\\udc00"}',
    "raw surrogate": b'{"model": "\xed\xa0\x80"}',
    "multipart": b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--",
}


@BOTH
@pytest.mark.parametrize("case", NOT_JSON)
async def test_a_body_that_is_not_json(site: Served[FakeEngine], path: str, case: str) -> None:
    error = await refused(site, path, NOT_JSON[case])
    assert error == {
        "message": "The request body is not valid JSON.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_json",
    }


@BOTH
@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"1", b"true", b"[{}]"])
async def test_a_body_that_is_no_object(site: Served[FakeEngine], path: str, body: bytes) -> None:
    assert (await refused(site, path, body))["param"] is None


@BOTH
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "presence_penalty", "repetition_penalty"])
async def test_numbers_that_are_none(site: Served[FakeEngine], path: str, number: str, field: str) -> None:
    body = json.dumps(payload(path, **{field: 0})).replace(f'"{field}": 0', f'"{field}": {number}').encode()
    assert (await refused(site, path, body))["param"] in (field, None)  # None: not JSON at all


WRONG: dict[str, list[Any]] = {
    "temperature": [-0.1, 2.1, 1e308, "1", True, [1], {}],
    "top_p": [0, -1, 1.1, "0.5"],
    "top_k": [-2, 1.0, 1.5, "3", 2**63, 10**400],
    "min_p": [-0.1, 1.1],
    "n": [0, -1, 129, 2**63, 1.0, "3", True],
    "max_tokens": [0, -1, 2**63, 10**400, 1.0, "3", True],
    "min_tokens": [-1, 2**63, 1.0, "3"],
    "seed": [2**63, -(2**63) - 1, 1.0, "3", True],
    "presence_penalty": [-2.1, 2.1, "0"],
    "frequency_penalty": [-2.1, 2.1],
    "repetition_penalty": [0, -1, 10.1],
    "logit_bias": [
        [],
        "x",
        {"a": 1},
        {"-1": 1},
        {"1.0": 1},
        {"": 1},
        {"٣": 1},
        {"1e3": 1},
        {"49152": 1},
        {str(10**30): 1},
        {str(i): 0 for i in range(1025)},
    ],
    "stop": ["", [""], ["x"] * 17, 1, [1], {}, ["x", None], [["x"]]],
    "stop_token_ids": [[-1], [49152], [2**31], [1.0], ["1"], [True], 1, "1", [1] * 129],
    "stream": ["true", 1, []],
    "stream_options": [True, [], "x"],
    "ignore_eos": ["true", 1],
    "include_timings": ["true", 1],
    "user": [1, [], "x" * 1025],
    "return_token_ids": ["true", 1, []],
    "prompt_logprobs": [-1, 21, 1.0, "1", True],
    "priority": [2**31, -(2**31) - 1, 1.0, "1", True],
    "cache_salt": ["", 1, [], "x" * 1025],
    "model": [1, None, [], "", "x" * 1025],
}


@BOTH
@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field in WRONG for value in WRONG[field]],
    ids=lambda value: repr(value)[:30],
)
async def test_a_wrong_value_is_named(site: Served[FakeEngine], path: str, field: str, value: Any) -> None:
    error = await refused(site, path, payload(path, **{field: value}))
    assert str(error["param"]).split(".")[0] == field
    assert len(error["message"]) < 1000


@pytest.mark.parametrize("value", [-101, 101, "x", None])
async def test_a_wrong_bias_is_named_with_its_token(site: Served[FakeEngine], value: Any) -> None:
    assert (await refused(site, CHAT, chat(logit_bias={"7": value})))["param"] == "logit_bias.7"


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        {},
        "Hi",
        ["Hi"],
        [{}],
        [{"role": "user", "content": 1}],
        [{"role": "robot", "content": "Hi"}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": [["Hi"]]}],
        [{"role": "user", "content": "Hi"}] * 10_001,
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_wrong_messages(site: Served[FakeEngine], messages: Any) -> None:
    error = await refused(site, CHAT, chat(messages=messages))
    assert str(error["param"]).split(".")[0] == "messages"


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        "",
        [],
        [""],
        [[]],
        [1, "x"],
        ["x", 1],
        [[1], "x"],
        [1, [2]],
        [-1],
        [49152],
        [[1], [49152]],
        [2**31],
        [2**70],
        [1.0],
        [True],
        [None],
        {},
        1,
        ["x"] * 129,
        [[1]] * 129,
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_wrong_prompts(site: Served[FakeEngine], prompt: Any) -> None:
    error = await refused(site, COMPLETIONS, completion(prompt=prompt))
    assert str(error["param"]).split(".")[0] == "prompt"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "text"])
async def test_what_is_missing_is_named(site: Served[FakeEngine], path: str) -> None:
    body = payload(path)
    for field in body:
        error = await refused(site, path, {name: value for name, value in body.items() if name != field})
        assert error["param"] == field


async def test_more_choices_over_all_prompts_than_one_request_may_have(site: Served[FakeEngine]) -> None:
    assert (await refused(site, COMPLETIONS, completion(prompt=["x"] * 65, n=2)))["param"] == "n"


UNSUPPORTED: list[tuple[str, str, Any]] = [
    (CHAT, "audio", {"voice": "x", "format": "wav"}),
    (CHAT, "functions", [{"name": "f"}]),
    (CHAT, "function_call", "auto"),
    (CHAT, "chat_template", "{% for i in range(10**9) %}x{% endfor %}"),
    (CHAT, "documents", [{"title": "x"}]),
    (COMPLETIONS, "suffix", "x"),
    (COMPLETIONS, "best_of", 2),
    (COMPLETIONS, "response_format", {"type": "json_object"}),
    (COMPLETIONS, "prompt_embeds", "AAAA"),
]


@pytest.mark.parametrize(("path", "field", "value"), UNSUPPORTED)
async def test_what_is_not_implemented_is_refused(site: Served[FakeEngine], path: str, field: str, value: Any) -> None:
    error = await refused(site, path, payload(path, **{field: value}))
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "word " * 600}]}, "messages"),
        (COMPLETIONS, {"prompt": "word " * 600}, "prompt"),
        (COMPLETIONS, {"prompt": [1] * 512}, "prompt"),
        (COMPLETIONS, {"prompt": [[1], [1] * 512]}, "prompt"),
        (CHAT, {"max_tokens": 512}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 512}, "max_completion_tokens"),
        (CHAT, {"max_completion_tokens": 2**63 - 1, "max_tokens": 1}, "max_completion_tokens"),
        (COMPLETIONS, {"prompt": [1] * 500, "max_tokens": 13}, "max_tokens"),
        (COMPLETIONS, {"prompt": [1] * 500}, "max_tokens"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_more_tokens_than_the_context_holds(
    site: Served[FakeEngine], path: str, fields: dict[str, Any], param: str
) -> None:
    error = await refused(site, path, payload(path, **fields))
    assert (error["param"], error["code"]) == (param, "context_length_exceeded")
    assert "512" in error["message"]


async def test_fewer_tokens_at_most_than_at_least(site: Served[FakeEngine]) -> None:
    assert (await refused(site, CHAT, chat(max_tokens=3, min_tokens=4)))["param"] == "min_tokens"


@BOTH
@pytest.mark.parametrize("name", ["gpt-4o", f"{MODEL} ", MODEL.upper(), "../../etc/passwd", "\x00", "x" * 1024])
async def test_an_unknown_model(site: Served[FakeEngine], path: str, name: str) -> None:
    error = await refused(site, path, payload(path, model=name), status=404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")


@BOTH
@pytest.mark.parametrize("extra", [0, 1, 1 << 20])
async def test_a_body_over_the_limit(site: Served[FakeEngine], path: str, extra: int) -> None:
    limit = site.services.settings.http.max_body_bytes
    if extra == 0:
        body = json.dumps(payload(path, temperature=-1)).encode()
        assert (await refused(site, path, body.ljust(limit)))["param"] == "temperature"
    else:
        assert (await refused(site, path, b" " * (limit + extra), status=413))["code"] == "request_too_large"


@BOTH
@pytest.mark.parametrize(
    "fields",
    [
        {"stop_token_ids": [10**6]},
        {"logit_bias": {"191222": -100}},
        {"logit_bias": {"AI": 1}},
        {"logit_bias": {str(token_id): 1 for token_id in range(2000)}},
        {"stop_token_ids": list(range(2000))},
        {"n": 16384},
        {"max_tokens": 0, "echo": True},
        {"structured_outputs": {"json": {"type": "array", "maxItems": 10**9}}},
    ],
    ids=lambda fields: repr(fields)[:40],
)
async def test_what_once_killed_an_engine_is_refused_and_neighbours_go_on(
    site: Served[FakeEngine], path: str, fields: dict[str, Any]
) -> None:
    neighbour = site.open(path, payload(path))
    sequence = await site.engine.sequence()
    refusal = await site.post(path, payload(path, **fields))
    assert refusal.status == 400
    assert refusal.error["type"] == "invalid_request_error"
    sequence.say("still here", finish=FinishReason.LENGTH)
    assert (await neighbour).status == 200
    assert site.engine.sequences == [sequence]


@BOTH
@pytest.mark.parametrize(
    "options",
    [{"include_usage": 1}, {"include_usage": "true"}, {"continuous_usage_stats": 1}, {"continuous_usage_stats": []}],
    ids=repr,
)
async def test_a_wrong_option_of_a_stream_is_named(site: Served[FakeEngine], path: str, options: Any) -> None:
    error = await refused(site, path, payload(path, stream=True, stream_options=options))
    assert str(error["param"]).startswith("stream_options.")


async def test_of_a_key_given_twice_the_last_counts(site: Served[FakeEngine]) -> None:
    body = json.dumps(chat()).encode()[:-1] + b', "temperature": 1, "temperature": -1}'
    assert (await refused(site, CHAT, body))["param"] == "temperature"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"some_future_field": 1, "metadata": {"a": "b"}, "store": True, "user": "me"}),
        (CHAT, {"response_format": {"type": "text"}, "tools": None, "tool_choice": "auto", "logprobs": False}),
        (CHAT, {"temperature": None, "top_p": None, "stop": None, "stream": None, "max_tokens": None, "seed": None}),
        (CHAT, {"temperature": 2, "top_p": 1, "logit_bias": {"0": 100, "49151": -100}, "stop": []}),
        (CHAT, {"top_k": -1, "presence_penalty": -2, "frequency_penalty": 2}),
        (CHAT, {"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}]}], "top_k": 10**9}),
        (COMPLETIONS, {"prompt": [0], "best_of": 1, "echo": False, "suffix": None, "logprobs": None}),
        (COMPLETIONS, {"prompt": [[0], [49151]]}),
        (COMPLETIONS, {"prompt": "\x00"}),
        (COMPLETIONS, {"prompt": [1] * 500, "max_tokens": 12}),
        (COMPLETIONS, {"seed": -(2**63)}),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_what_is_right_is_not_refused(site: Served[FakeEngine], path: str, fields: dict[str, Any]) -> None:
    exchange = site.open(path, payload(path, **fields))
    await site.engine.sequence()
    for sequence in site.engine.sequences:
        sequence.end()
    assert (await exchange).status == 200
