"""Chat templates, as models bring them: each has its own idea of messages, tools and options."""

from typing import Any

import pytest

from server.engine.tokenizer import FolderTokenizer
from server.errors import InvalidRequest

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def own(source: str) -> FolderTokenizer:
    """One whose template the tests may change."""
    return FolderTokenizer(source)


def rendered(own: FolderTokenizer, template: str | None, *messages: dict[str, Any], **kwargs: Any) -> str:
    own.hf.chat_template = template
    return own.render_chat(messages or (USER,), **kwargs)


def test_the_answers_turn_is_opened(tokenizer: FolderTokenizer) -> None:
    assert tokenizer.render_chat([USER]).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_the_template_sees_messages_as_they_are(own: FolderTokenizer) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}|{{ m.tool_calls[0].function.arguments.city }};{% endfor %}"
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"city": "Łódź"}}}
    assert rendered(own, template, {"role": "assistant", "content": "", "tool_calls": [call]}) == "assistant:|Łódź;"


def test_tools_and_options_reach_the_template(own: FolderTokenizer) -> None:
    template = "{{ tools[0].function.name }} {{ enable_thinking }} {{ add_generation_prompt }}"
    assert rendered(own, template, tools=[TOOL], enable_thinking=False) == "f False True"


def test_without_tools_the_template_has_none(own: FolderTokenizer) -> None:
    assert rendered(own, "{{ tools is none }}", tools=[]) == "True"


@pytest.mark.parametrize(
    "template",
    [
        None,
        "",
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].absent.further }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[0] | fromjson }}",
        "{% for",
        "{{ messages[9].content }}",
    ],
)
def test_whatever_a_template_does_not_take_is_the_clients_error(own: FolderTokenizer, template: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rendered(own, template)
    assert caught.value.param == "messages"
    assert "alternate" not in caught.value.message


def test_special_tokens_are_encoded_as_such_and_not_added(tokenizer: FolderTokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>Hi", add_special_tokens=False)
    assert ids[0] == 1
    assert tokenizer.backend.decode(ids, skip_special_tokens=False) == "<|im_start|>Hi"


def test_a_text_is_never_truncated_or_padded(tokenizer: FolderTokenizer) -> None:
    assert len(tokenizer.encode("word " * 20_000)) >= 20_000
    assert tokenizer.encode("") == []
