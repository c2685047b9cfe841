"""litellm as a library."""

import json
from collections.abc import Callable

import pytest

from tests.clients.client import Report


@pytest.fixture
def seen(run_python: Callable[[str, str], Report]) -> Report:
    return run_python("sdks", "litellm_python.py")


def test_a_streamed_chat_says_what_a_whole_one_says(seen: Report) -> None:
    chat = seen["chat"]
    assert "Paris" in chat["text"]
    assert chat["streamed"] == chat["text"]
    assert chat["finish"] == chat["streamed_finish"] == "stop"
    assert chat["usage"] == chat["streamed_usage"]
    assert seen["chat_async"] == {"text": chat["text"], "streamed": chat["text"]}


def test_a_streamed_completion_says_what_a_whole_one_says(seen: Report) -> None:
    assert "Paris" in seen["completion"]["text"]
    assert seen["completion"]["streamed"] == seen["completion"]["text"]


def test_a_required_tool_is_called(seen: Report) -> None:
    has_id, name, arguments = seen["tools"][0]
    assert has_id
    assert name == "get_weather"
    assert json.loads(arguments)["city"] in ("Paris", "Rome")


def test_a_response_says_the_same(seen: Report) -> None:
    assert seen["response"] == {"text": seen["chat"]["text"], "status": "completed"}


def test_errors_become_litellms_own(seen: Report) -> None:
    assert seen["errors"] == {"model": "NotFoundError", "temperature": "BadRequestError"}
