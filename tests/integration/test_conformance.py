"""What the real engine says is the same streamed and whole.

At temperature 0, one request at a time, and nothing taken from the prefix cache: every request has a salt of its own.
"""

import json
from http.client import HTTPConnection
from typing import Any
from uuid import uuid4

import pytest

from tests.conformance import normal
from tests.conformance.cases import TOOLS
from tests.conformance.normal import Normal
from tests.integration.http import CHAT, COMPLETIONS, MODEL
from tests.integration.live import DEADLINE_S, LiveServer
from tests.support import sse

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "large": {"type": "boolean"}},
    "required": ["city", "large"],
    "additionalProperties": False,
}


def post(live: LiveServer, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    connection = HTTPConnection(live.host, live.port, timeout=DEADLINE_S)
    try:
        connection.request("POST", path, json.dumps({"model": MODEL, **body}), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def told(live: LiveServer, body: dict[str, Any]) -> dict[str, Any]:
    """The JSON of an answer to a chat, whatever its status."""
    answer: dict[str, Any] = json.loads(post(live, CHAT, body)[1])
    return answer


def asked(live: LiveServer, path: str, fields: dict[str, Any]) -> tuple[Normal, Normal]:
    """Streamed, and whole."""
    of_stream, of_body = {
        CHAT: (normal.of_chat_stream, normal.of_chat_body),
        COMPLETIONS: (normal.of_completion_stream, normal.of_completion_body),
    }[path]
    body = {"temperature": 0, **fields}
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    status, streamed = post(live, path, body | options | {"cache_salt": uuid4().hex})
    assert status == 200, streamed
    status, whole = post(live, path, body | {"cache_salt": uuid4().hex})
    assert status == 200, whole
    return of_stream(sse.events(streamed)), of_body(json.loads(whole))


def question(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 40, **fields}


# The small model knows no syntax of calls: a grammar holds its hand, and the parser reads what it writes.
PARIS = r'\{"name": "get_weather", "arguments": \{"city": "[A-Z][a-z]{2,9}"\}\}'
HERMES_CALL = {"structured_outputs": {"regex": rf"Let me see\.\n<tool_call>\n{PARIS}\n</tool_call>"}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (CHAT, question("What is the capital of France?")),
    "multilingual": (CHAT, question("Say hello in Russian, Korean and with emoji: привет 안녕 🙂", max_tokens=60)),
    "two choices": (CHAT, question("Name a colour.", n=2, seed=7, temperature=0.8)),
    "a stop": (CHAT, question("Count from 1 to 10.", stop=["5", "never"])),
    "log probabilities": (CHAT, question("Hello!", logprobs=True, top_logprobs=3, return_token_ids=True)),
    "any tool": (CHAT, question("The weather in Paris?", tool_choice="required", max_tokens=120, **TOOLS)),
    "one tool": (CHAT, question("The weather in Paris?", tool_choice=NAMED, max_tokens=120, **TOOLS)),
    "a call of the model's": (CHAT, question("The weather in Paris?", max_tokens=120, **HERMES_CALL, **TOOLS)),
    "a schema": (
        CHAT,
        question("Paris", response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}),
    ),
    "a regex": (CHAT, question("The year?", structured_outputs={"regex": "in [0-9]{4}"})),
    "a choice": (CHAT, question("Is fire cold?", structured_outputs={"choice": ["yes", "no"]})),
    "completion": (COMPLETIONS, {"prompt": "The capital of France is", "max_tokens": 12}),
    "echo": (COMPLETIONS, {"prompt": ["One two", "Rot 🙂 grün"], "max_tokens": 6, "echo": True, "logprobs": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_streamed_and_whole_say_the_same(live: LiveServer, name: str) -> None:
    path, fields = CASES[name]
    streamed, whole = asked(live, path, fields)
    assert streamed == whole
    assert whole.usage is not None and whole.usage["completion_tokens"] > 0
    assert whole.usage["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize("name", ["any tool", "one tool"])
def test_a_forced_call_is_one_of_the_tools_with_arguments_that_fit(live: LiveServer, name: str) -> None:
    path, fields = CASES[name]
    _, whole = asked(live, path, fields)
    said = whole.choices[0]
    assert said.content is None and said.calls
    assert {call[0] for call in said.calls} <= {"get_weather", "clock"}
    if said.finish == "tool_calls":
        assert all(isinstance(json.loads(arguments), dict) for _, arguments in said.calls)


def test_a_call_that_the_model_may_make_is_read(live: LiveServer) -> None:
    said = asked(live, *CASES["a call of the model's"])[1].choices[0]
    assert (said.content, said.finish) == ("Let me see.", "tool_calls")
    ((name, arguments),) = said.calls
    assert name == "get_weather"
    assert set(json.loads(arguments)) == {"city"}


def test_an_answer_under_a_schema_conforms(live: LiveServer) -> None:
    _, whole = asked(live, *CASES["a schema"])
    said = whole.choices[0]
    assert said.finish == "stop" and said.content is not None
    answer = json.loads(said.content)
    assert set(answer) == {"city", "large"} and isinstance(answer["large"], bool)


@pytest.mark.parametrize(
    "constraint",
    [
        {"grammar": "root ::= ((("},
        {"json": {"$ref": "#/nowhere"}},
        {"json": {"$ref": "#"}},
        {"structural_tag": {"type": "structural_tag", "garbage": 1}},
    ],
    ids=repr,
)
def test_a_constraint_that_cannot_be_compiled_is_the_clients_mistake(live: LiveServer, constraint: Any) -> None:
    assert told(live, question("x", structured_outputs=constraint))["error"]["code"] == "invalid_constraint"
    again = told(live, question("x", structured_outputs={"choice": ["a", "b"]}))
    assert again["choices"][0]["message"]["content"] in ("a", "b")


def test_a_model_that_writes_blanks_without_end_is_stopped(live: LiveServer) -> None:
    # vllm-project/vllm#55313: a grammar lets a small model write blanks for ever, and max_tokens paid for them.
    forever = question("x", structured_outputs={"regex": "[ ]{600,}x"}, max_tokens=1500)
    status, body = post(live, CHAT, forever)
    assert (status, json.loads(body)["error"]["code"]) == (422, "runaway_output")


def test_a_seed_repeats_and_another_does_not(live: LiveServer) -> None:
    def story(seed: int) -> Any:
        fields = question("Tell me a story.", temperature=1.5, seed=seed, max_tokens=24)
        return told(live, {"cache_salt": uuid4().hex, **fields})["choices"][0]["message"]["content"]

    assert story(1) == story(1)
    assert story(1) != story(2)
