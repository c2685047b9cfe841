"""langchain-openai."""

from collections.abc import Callable

import pytest

from tests.clients.client import Report


@pytest.fixture
def seen(run_python: Callable[[str, str], Report]) -> Report:
    return run_python("sdks", "langchain_python.py")


def test_a_streamed_chat_says_what_a_whole_one_says(seen: Report) -> None:
    chat = seen["chat"]
    assert "Paris" in chat["text"]
    assert chat["streamed"] == chat["text"]
    assert chat["finish"] == chat["streamed_finish"] == "stop"
    counts = ("input_tokens", "output_tokens", "total_tokens")
    assert [chat["usage"][count] for count in counts] == [chat["streamed_usage"][count] for count in counts]
    assert seen["chat_async"] == {"text": chat["text"], "streamed": chat["text"]}


def test_a_streamed_completion_says_what_a_whole_one_says(seen: Report) -> None:
    assert "Paris" in seen["completion"]["text"]
    assert seen["completion"]["streamed"] == seen["completion"]["text"]


def test_structured_output_comes_by_schema_and_by_function(seen: Report) -> None:
    for way in ("schema", "function"):
        assert seen["structured"][way]["city"] in ("Paris", "Rome")


def test_a_bound_tool_is_called_streamed_and_not(seen: Report) -> None:
    for has_id, name, arguments in (seen["tools"]["calls"][0], seen["tools"]["streamed"][0]):
        assert has_id
        assert name == "get_weather"
        assert arguments["city"] in ("Paris", "Rome")


def test_a_tools_result_goes_back_to_the_model(seen: Report) -> None:
    assert seen["tool_result"]


def test_the_responses_api_says_the_same(seen: Report) -> None:
    answer = seen["responses_api"]
    assert answer["text"] == answer["streamed"] == seen["chat"]["text"]
    assert answer["usage"]["output_tokens"] == seen["chat"]["usage"]["output_tokens"]
