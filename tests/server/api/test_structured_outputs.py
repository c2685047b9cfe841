"""Answers that must conform to something: what a request may ask for, and how an answer that runs away ends."""

import json
from typing import Any

import pytest

from sampling.params import Structured
from server.engine.protocol import ModelInfo
from tests.conformance.cases import TOOLS
from tests.server.api.test_chat_messages import submitted
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.sse import DONE, finish_reasons, text_of
from tests.support.waiting import turns, until

BOTH = pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "text"])
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
SCHEMA = {"type": "object", "properties": {"ответ": {"type": "integer"}}}
TEXT = json.dumps(SCHEMA, ensure_ascii=False)
TAG = {"type": "structural_tag", "structures": [], "triggers": ["<f>"]}


def payload(path: str, **fields: Any) -> dict[str, Any]:
    return chat(**fields) if path == CHAT else completion(**fields)


def nested(depth: int) -> dict[str, Any]:
    node: dict[str, Any] = {}
    for _ in range(depth):
        node = {"items": node}
    return node


@BOTH
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"json": SCHEMA}, Structured("json", TEXT)),
        ({"json": json.dumps(SCHEMA)}, Structured("json", TEXT)),
        ({"json_object": True}, Structured("json_object")),
        ({"regex": r"\d{4}"}, Structured("regex", r"\d{4}")),
        ({"choice": ["yes", "no"]}, Structured("choice", ("yes", "no"))),
        ({"grammar": "root ::= 'a'"}, Structured("grammar", "root ::= 'a'")),
        ({"structural_tag": TAG}, Structured("structural_tag", json.dumps(TAG))),
        ({"structural_tag": json.dumps(TAG)}, Structured("structural_tag", json.dumps(TAG))),
        ({"regex": "a", "json": None, "json_object": False, "choice": None}, Structured("regex", "a")),
        (None, None),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_each_kind_reaches_the_engine(
    site: Served[FakeEngine], path: str, given: Any, expected: Structured | None
) -> None:
    assert (await submitted(site, payload(path, structured_outputs=given), path)).params.structured == expected


WRONG: list[Any] = [
    {},
    {"json_object": False},
    {"unknown": 1},
    {"regex": "a", "choice": ["a"]},
    {"json": SCHEMA, "json_object": True},
    {"json": []},
    {"json": 1},
    {"json": "[]"},
    {"json": "{"},
    {"json": ""},
    {"json": "[" * 100_000},
    {"json": '{"a":' * 100_000},
    {"json": nested(48)},
    {"json": {"maxItems": 1025}},
    {"json": {"pattern": "a{1025}"}},
    {"json": {"a": "x" * 65_536}},
    {"json_object": "true"},
    {"regex": ""},
    {"regex": "a{1025}"},
    {"regex": "x" * 2049},
    {"regex": 1},
    {"choice": []},
    {"choice": [""]},
    {"choice": "yes"},
    {"choice": [1]},
    {"choice": ["x"] * 1025},
    {"grammar": ""},
    {"grammar": " \n"},
    {"grammar": "x" * 65_537},
    {"grammar": {}},
    {"structural_tag": "{"},
    {"structural_tag": []},
    {"structural_tag": "1"},
    [],
    "x",
    True,
]


@BOTH
@pytest.mark.parametrize("given", WRONG, ids=lambda value: repr(value)[:40])
async def test_a_wrong_constraint_is_refused(site: Served[FakeEngine], path: str, given: Any) -> None:
    answer = await site.post(path, payload(path, structured_outputs=given))
    assert answer.status == 400, answer.body
    assert str(answer.error["param"]).split(".")[0] == "structured_outputs"
    assert len(answer.error["message"]) < 1000
    assert site.engine.sequences == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["structured_outputs", "response_format", "tools"])
async def test_a_schema_with_a_number_that_is_none_is_refused(
    site: Served[FakeEngine], number: str, field: str
) -> None:
    schema = {"type": "number", "maximum": "?"}
    function = {"name": "f", "parameters": schema}
    fields: dict[str, dict[str, Any]] = {
        "structured_outputs": {"structured_outputs": {"json": schema}},
        "response_format": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}},
        "tools": {"tools": [{"type": "function", "function": function}], "tool_choice": "required"},
    }
    exchange = site.open(CHAT, json.dumps(chat(**fields[field])).replace('"?"', number).encode())
    await turns()
    reached = [sequence.request.params.structured for sequence in site.engine.sequences]
    for sequence in site.engine.sequences:
        sequence.end()
    assert ((await exchange).status, reached) == (400, [])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "text"}, None),
        (None, None),
        ({"type": "json_object"}, Structured("json_object")),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, Structured("json", TEXT)),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
            Structured("json", TEXT),
        ),
        (TAG, Structured("structural_tag", json.dumps(TAG))),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_each_response_format_reaches_the_engine(
    site: Served[FakeEngine], given: Any, expected: Structured | None
) -> None:
    assert (await submitted(site, chat(response_format=given))).params.structured == expected


@pytest.mark.parametrize(
    "given",
    [
        {},
        "json_object",
        {"type": "yaml"},
        {"type": None},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {}},
        {"type": "json_schema", "json_schema": {"name": "x"}},
        {"type": "json_schema", "json_schema": {"name": "", "schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": []}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": nested(48)}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"minLength": 5000}}},
    ],
    ids=lambda value: repr(value)[:70],
)
async def test_a_wrong_response_format_is_refused(site: Served[FakeEngine], given: Any) -> None:
    answer = await site.post(CHAT, chat(response_format=given))
    assert answer.status == 400, answer.body
    assert str(answer.error["param"]).split(".")[0] == "response_format"


async def test_two_constraints_are_one_too_many(site: Served[FakeEngine]) -> None:
    for response_format in (
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    ):
        answer = await site.post(CHAT, chat(response_format=response_format, structured_outputs={"regex": "a"}))
        assert (answer.status, answer.error["param"]) == (400, "structured_outputs")
    fields = {"response_format": {"type": "text"}, "structured_outputs": {"regex": "a"}}
    assert (await submitted(site, chat(**fields))).params.structured == Structured("regex", "a")


# ---- answers that run away

RUNS = pytest.mark.parametrize("run", ["\n" * 600, " \t" * 300, "7" * 600], ids=["lines", "blanks", "digits"])


def constrained(path: str, **fields: Any) -> dict[str, Any]:
    return payload(path, structured_outputs={"json": {}}, **fields)


def is_runaway(error: dict[str, Any]) -> None:
    assert (error["type"], error["code"]) == ("invalid_request_error", "runaway_output")
    assert "blanks or digits" in error["message"]


@BOTH
@STREAM
@RUNS
async def test_an_answer_that_runs_away_before_its_first_byte_is_a_status(
    site: Served[FakeEngine], path: str, stream: bool, run: str
) -> None:
    """Seen as json that went on in whitespace or digits until the token limit."""
    exchange = site.open(path, constrained(path, stream=stream))
    sequence = await site.engine.sequence()
    sequence.say("[" + run)
    await exchange
    assert exchange.status == 422
    is_runaway(exchange.error)
    await until(lambda: sequence.aborted and site.idle)


@BOTH
@RUNS
async def test_an_answer_that_runs_away_after_its_first_byte_ends_in_an_error(
    site: Served[FakeEngine], path: str, run: str
) -> None:
    exchange = site.open(path, constrained(path, stream=True, stream_options={"include_usage": True}))
    sequence = await site.engine.sequence()
    sequence.say('{"a":')
    await until(lambda: exchange.writes)
    for start in range(0, len(run), 20):
        sequence.say(run[start : start + 20])
        await turns(2)
    await exchange
    assert exchange.status == 200
    *_, error, done = exchange.events
    assert done == DONE
    is_runaway(error["error"])
    chunks = exchange.events[:-2]
    assert finish_reasons(chunks) == {}
    assert text_of(chunks) == '{"a":' + run[: len(text_of(chunks)) - 5]
    assert len(text_of(chunks)) <= 5 + 512
    await until(lambda: sequence.aborted and site.idle)


@STREAM
async def test_a_choice_that_runs_away_ends_the_request_and_its_other_choices(
    site: Served[FakeEngine], stream: bool
) -> None:
    exchange = site.open(CHAT, chat(stream=stream, n=2, response_format={"type": "json_object"}))
    second = await site.engine.sequence(1)
    second.say(" " * 600)
    assert (await exchange).status == 422
    await until(lambda: all(sequence.aborted for sequence in site.engine.sequences))


@STREAM
async def test_a_forced_call_that_runs_away_is_ended_too(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(CHAT, chat(stream=stream, tool_choice="required", **TOOLS))
    (await site.engine.sequence()).say("[" + "\n" * 600)
    assert (await exchange).status == 422


@BOTH
@STREAM
@RUNS
async def test_the_operator_may_let_answers_run(model: ModelInfo, path: str, stream: bool, run: str) -> None:
    async with serving(FakeEngine(model), "chat.run_limit=0") as site:
        exchange = site.open(path, constrained(path, stream=stream))
        sequence = await site.engine.sequence()
        sequence.say(run)
        sequence.end()
        await exchange
        found = exchange.events if stream else [exchange.json]
        text = text_of(found) if stream or path == COMPLETIONS else found[0]["choices"][0]["message"]["content"]
        assert (exchange.status, text) == (200, run)


@BOTH
@RUNS
async def test_an_answer_without_a_constraint_may_run(site: Served[FakeEngine], path: str, run: str) -> None:
    exchange = site.open(path, payload(path, stream=True))
    sequence = await site.engine.sequence()
    sequence.say(run)
    sequence.end()
    assert text_of((await exchange).events) == run


async def test_the_operator_chooses_how_far_answers_may_run(model: ModelInfo) -> None:
    async with serving(FakeEngine(model), "chat.run_limit=3") as site:
        for index, (text, status) in enumerate((("[   ]", 200), ("[    ]", 422), ("[123 456]", 200), ("1234", 422))):
            exchange = site.open(CHAT, chat(response_format={"type": "json_object"}))
            sequence = await site.engine.sequence(index)
            sequence.say(text)
            sequence.end()
            assert (await exchange).status == status
