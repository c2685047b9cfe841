"""anthropic's client against /v1/messages."""

import json
from collections.abc import Callable

import pytest

from tests.clients.client import Report


@pytest.fixture
def seen(run_python: Callable[[str, str], Report]) -> Report:
    return run_python("sdks", "anthropic_python.py")


def test_a_streamed_message_says_what_a_whole_one_says(seen: Report) -> None:
    created = seen["create"]
    assert "Paris" in created["text"]
    assert (created["role"], created["stop_reason"]) == ("assistant", "end_turn")
    assert all(created["tokens"])
    assert seen["stream"] == {name: created[name] for name in ("text", "stop_reason", "tokens")}
    assert seen["both_async"] == {"text": created["text"], "streamed": created["text"]}


def test_the_events_come_in_the_protocols_order(seen: Report) -> None:
    assert seen["raw_stream"] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_tokens_are_counted_as_they_are_used(seen: Report) -> None:
    system = seen["system"]
    assert system["told"] == system["used"]
    assert system["plain"] == seen["create"]["tokens"][0]
    assert system["plain"] != system["told"]


def test_a_stop_sequence_is_named_and_not_shown(seen: Report) -> None:
    stop = seen["stop_sequence"]
    assert seen["create"]["text"].startswith(stop["text"] + " France")
    assert (stop["reason"], stop["sequence"]) == ("stop_sequence", " France")


def test_the_token_limit_is_told(seen: Report) -> None:
    assert seen["max_tokens"] == "max_tokens"


def test_a_tool_is_used_streamed_and_not(seen: Report) -> None:
    tools = seen["tools"]
    assert tools["id"]
    assert tools["name"] == "get_weather"
    assert tools["input"]["city"] in ("Paris", "Rome")
    assert tools["streamed"]["city"] in ("Paris", "Rome")
    assert json.loads(tools["pieces"]) == tools["streamed"]
    assert tools["stop_reason"] == tools["streamed_stop_reason"] == "tool_use"


def test_a_tools_result_goes_back_to_the_model(seen: Report) -> None:
    assert seen["tool_result"]["text"]
    assert seen["tool_result"]["stop_reason"] in ("end_turn", "max_tokens")


def test_errors_arrive_as_the_clients_own_classes(seen: Report) -> None:
    assert seen["errors"]["model"] == ["NotFoundError", "error", "not_found_error", True]
    assert seen["errors"]["temperature"] == ["BadRequestError", "error", "invalid_request_error", True]
