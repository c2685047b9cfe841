"""openai-python, both lines that are in use."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.client import MODEL, Report, full, let_in_after, python, refused
from tests.integration.live import LiveServer

LINES = {"openai2": "2.", "sdks": "3."}


@pytest.fixture(params=LINES, ids=["openai-2", "openai-3"])
def environment(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def seen(environment: str, run_python: Callable[[str, str], Report]) -> Report:
    return run_python(environment, "openai_python.py")


def test_each_environment_has_its_own_line(environment: str, seen: Report) -> None:
    assert seen["version"].startswith(LINES[environment])


def test_the_served_model_is_listed(seen: Report) -> None:
    assert seen["models"] == [MODEL]


def test_a_streamed_chat_says_what_a_whole_one_says(seen: Report) -> None:
    chat = seen["chat"]
    assert "Paris" in chat["text"]
    assert chat["streamed"] == chat["text"]
    assert chat["finish"] == chat["streamed_finish"] == "stop"
    assert chat["usage"] == chat["streamed_usage"]
    assert chat["usage"]["total_tokens"] == chat["usage"]["prompt_tokens"] + chat["usage"]["completion_tokens"]
    assert chat["ids"] == 1
    assert chat["roles"] == ["assistant"]
    assert seen["chat_async"] == {"text": chat["text"], "streamed": chat["text"]}


def test_the_stream_helper_accumulates_each_choice(seen: Report) -> None:
    helper = seen["stream_helper"]
    assert helper["texts"] == [seen["chat"]["text"]] * 2
    assert helper["finish"] == ["stop", "stop"]
    assert helper["events"].count("content.done") == 2


def test_a_stop_string_ends_the_text_before_itself(seen: Report) -> None:
    stop = seen["stop"]
    assert seen["chat"]["text"].startswith(stop["text"] + " France")
    assert stop["finish"] == "stop"


def test_each_token_has_its_log_probability(seen: Report) -> None:
    tokens = seen["logprobs"]
    spoken = b"".join(bytes(token["bytes"]) for token in tokens).decode()
    assert spoken.startswith(seen["chat"]["text"])  # the end token may follow
    for token in tokens:
        first, second = token["top_logprobs"]
        assert first["token"] == token["token"]
        assert 0 >= first["logprob"] >= second["logprob"]


def test_a_model_of_pydantic_is_parsed(seen: Report) -> None:
    parsed = seen["parse"]["parsed"]
    assert parsed["city"] in ("Paris", "Rome")
    assert isinstance(parsed["in_europe"], bool)
    assert seen["parse"]["finish"] == "stop"
    assert seen["parse_async"] == parsed


def test_every_prefix_of_a_streamed_object_parses(seen: Report) -> None:
    streamed = seen["parse_stream"]
    assert streamed["snapshots"] > 1
    assert streamed["last"] == streamed["parsed"] == seen["parse"]["parsed"]


def test_json_mode_speaks_json(seen: Report) -> None:
    answer = seen["json_object"]
    assert answer["text"].lstrip().startswith("{")
    if answer["finish"] == "stop":
        assert isinstance(json.loads(answer["text"]), dict)


def test_a_required_tool_is_called_streamed_and_not(seen: Report) -> None:
    tools = seen["tools"]
    identity, kind, name, arguments = tools["calls"][0]
    assert identity
    assert (kind, name) == ("function", "get_weather")
    assert json.loads(arguments)["city"] in ("Paris", "Rome")
    assert tools["finish"] == "tool_calls"
    assert tools["streamed_id"]
    assert tools["streamed_name"] == "get_weather"
    assert tools["streamed_arguments"].startswith("{")


def test_a_named_tool_is_called_through_the_stream_helper(seen: Report) -> None:
    named = seen["tool_named"]
    assert named["name"] == "get_weather"
    assert named["arguments"]["city"] in ("Paris", "Rome")
    assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= set(named["events"])


def test_a_tools_result_goes_back_to_the_model(seen: Report) -> None:
    assert seen["tool_result"]["text"]
    assert not seen["tool_result"]["calls"]


def test_a_streamed_completion_says_what_a_whole_one_says(seen: Report) -> None:
    completion = seen["completion"]
    assert "Paris" in completion["text"]
    assert completion["streamed"] == completion["text"]
    assert completion["finish"] == "length"
    assert completion["usage"]["completion_tokens"] == 12


def test_a_response_is_made_and_found_again(seen: Report) -> None:
    response = seen["response"]
    assert response["text"] == seen["chat"]["text"]
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens"] == seen["chat"]["usage"]["completion_tokens"]
    assert response["stored"] == response["text"]
    assert response["stored_id"]
    again = seen["response_async"]
    assert again["text"] == again["streamed"] == again["stored"] == response["text"]


def test_a_responses_events_come_numbered_and_in_order(seen: Report) -> None:
    stream = seen["response_stream"]
    assert stream["numbers"] == list(range(len(stream["numbers"])))
    assert [kind for kind in stream["types"] if kind != "response.output_text.delta"] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert stream["text"] == stream["final"] == seen["response"]["text"]
    helper = seen["response_stream_helper"]
    assert (helper["text"], helper["status"]) == (stream["final"], "completed")


def test_a_response_continues_another(seen: Report) -> None:
    follow_up = seen["response_follow_up"]
    assert follow_up["previous"]
    assert follow_up["longer"]
    assert follow_up["text"]


def test_a_response_is_parsed_into_a_model_of_pydantic(seen: Report) -> None:
    assert seen["response_parse"]["city"] in ("Paris", "Rome")


def test_a_response_calls_a_required_function(seen: Report) -> None:
    calls = seen["response_tools"]
    has_id, name, arguments = calls["calls"][0]
    assert has_id
    assert name == "get_weather"
    assert json.loads(arguments)["city"] in ("Paris", "Rome")
    assert calls["streamed"].startswith("{")
    assert "response.function_call_arguments.done" in calls["types"]


def test_errors_arrive_as_the_clients_own_classes(seen: Report) -> None:
    assert seen["errors"]["model"] == ["NotFoundError", "model_not_found", "model", True]
    kind, _, parameter, has_id = seen["errors"]["temperature"]
    assert (kind, parameter, has_id) == ("BadRequestError", "temperature", True)


def test_a_full_server_is_tried_again_until_it_answers(environment: str, live: LiveServer, tmp_path: Path) -> None:
    """The plain and the async client at once; the server has room after it has refused both."""
    before = refused(live)
    with full(live):
        client = python(environment, "openai_retry.py", live, tmp_path)
        let_in_after(2, client, live, before)
    for tried in client.report()["retried"]:
        assert tried["retries"] >= 1
        assert tried["text"]
