import json

from hypothesis import given
from hypothesis import strategies as st

from server.streaming.sse import event, json_bytes


@given(st.text())
def test_any_text_survives_as_a_json_string_without_anything_like_a_line_end(text: str) -> None:
    encoded = json_bytes(text)
    assert json.loads(encoded) == text
    assert len(encoded.decode().splitlines()) == 1


def test_separators_are_escaped_and_everything_else_stays_readable() -> None:
    assert json_bytes("é\u2028\u2029\x85🙂") == '"é\\u2028\\u2029\\u0085🙂"'.encode()
    assert json_bytes("plain") == b'"plain"'


def test_a_backslash_before_a_separator_stays_one() -> None:
    assert json.loads(json_bytes("\\\u2028")) == "\\\u2028"


def test_an_event_is_one_line_and_an_empty_one() -> None:
    assert event({"a": "b\nc"}) == b'data: {"a":"b\\nc"}\n\n'
