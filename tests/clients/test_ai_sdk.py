"""The AI SDK with @ai-sdk/openai-compatible."""

from collections.abc import Callable

import pytest

from tests.clients.client import Report


@pytest.fixture
def seen(run_node: Callable[[str], Report]) -> Report:
    return run_node("ai_sdk.mjs")


def test_streamed_text_is_that_of_a_whole_answer(seen: Report) -> None:
    text = seen["text"]
    assert "Paris" in text["text"]
    assert text["streamed"] == text["text"]
    assert text["finish"] == text["streamed_finish"] == "stop"
    assert text["usage"] == text["streamed_usage"]
    assert all(text["usage"])


def test_a_completion_model_continues_a_prompt(seen: Report) -> None:
    assert "Paris" in seen["completion"]["text"]
    assert seen["completion"]["finish"] == "length"


def test_an_object_follows_its_schema_streamed_and_not(seen: Report) -> None:
    whole = seen["object"]["whole"]
    assert whole["city"] in ("Paris", "Rome")
    assert seen["object"]["streamed"] == whole


def test_a_required_tool_is_called_streamed_and_not(seen: Report) -> None:
    for name, given in (seen["tools"]["calls"][0], seen["tools"]["streamed"][0]):
        assert name == "get_weather"
        assert given["city"] in ("Paris", "Rome")
    assert seen["tools"]["finish"] == "tool-calls"


def test_an_error_has_its_status_and_message(seen: Report) -> None:
    name, status, message = seen["errors"]["model"]
    assert (name, status) == ("AI_APICallError", 404)
    assert "another" in message
