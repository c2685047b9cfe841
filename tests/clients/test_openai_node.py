"""The openai package for Node."""

import json
from collections.abc import Callable

import pytest

from tests.clients.client import MODEL, Report, full, let_in_after, node, refused
from tests.integration.live import LiveServer


@pytest.fixture
def seen(run_node: Callable[[str], Report]) -> Report:
    return run_node("openai_node.mjs")


def test_the_served_model_is_listed(seen: Report) -> None:
    assert seen["models"] == [MODEL]


def test_a_streamed_chat_says_what_a_whole_one_says(seen: Report) -> None:
    chat = seen["chat"]
    assert "Paris" in chat["text"]
    assert chat["streamed"] == chat["text"]
    assert chat["finish"] == chat["streamed_finish"] == "stop"
    assert chat["usage"] == chat["streamed_usage"]


def test_the_stream_helper_accumulates_each_choice(seen: Report) -> None:
    assert seen["stream_helper"] == {"texts": [seen["chat"]["text"]] * 2, "finish": ["stop", "stop"]}


def test_a_schema_of_zod_is_parsed(seen: Report) -> None:
    assert seen["parse"]["city"] in ("Paris", "Rome")


def test_a_required_tool_is_called_streamed_and_not(seen: Report) -> None:
    for has_id, name, arguments in (seen["tools"]["calls"][0], seen["tools"]["streamed"][0]):
        assert has_id
        assert name == "get_weather"
        assert json.loads(arguments)["city"] in ("Paris", "Rome")
    assert seen["tools"]["finish"] == "tool_calls"


def test_a_streamed_completion_says_what_a_whole_one_says(seen: Report) -> None:
    assert "Paris" in seen["completion"]["text"]
    assert seen["completion"]["streamed"] == seen["completion"]["text"]


def test_a_response_is_made_streamed_and_found_again(seen: Report) -> None:
    response = seen["response"]
    assert response["text"] == response["stored"] == response["streamed"] == seen["chat"]["text"]
    assert response["types"][0] == "response.created"
    assert response["types"][-1] == "response.completed"


def test_errors_arrive_as_the_clients_own_classes(seen: Report) -> None:
    assert seen["errors"]["model"] == ["NotFoundError", 404, "model_not_found", "model", True]
    kind, status, _, parameter, has_id = seen["errors"]["temperature"]
    assert (kind, status, parameter, has_id) == ("BadRequestError", 400, "temperature", True)


def test_leaving_the_loop_ends_the_stream(seen: Report) -> None:
    assert seen["aborted"] == {"chunks": 2, "aborted": True}


def test_a_full_server_is_tried_again_until_it_answers(live: LiveServer) -> None:
    before = refused(live)
    with full(live):
        client = node("openai_node_retry.mjs", live)
        let_in_after(1, client, live, before)
    tried = client.report()["retried"]
    assert set(tried["statuses"][:-1]) == {503}
    assert tried["statuses"][-1] == 200
    assert tried["text"]
