from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.run.prompt_files import Script, read
from bench.run.spec import SpecError


def said(speaker: str, value: str) -> dict[str, str]:
    return {"from": speaker, "value": value}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def sharegpt(folder: Path, *conversations: list[dict[str, str]]) -> Path:
    path = folder / "share.json"
    path.write_bytes(orjson.dumps([{"id": "x", "conversations": one} for one in conversations]))
    return path


def jsonl(folder: Path, *rows: Any) -> Path:
    path = folder / "prompts.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    return path


def test_sharegpt_is_read_for_what_the_user_says(tmp_path: Path) -> None:
    talk = [said("system", "be brief"), said("human", "a?"), said("gpt", "A."), said("user", "b?"), said("gpt", "B.")]
    path = sharegpt(tmp_path, talk)
    opening = [{"role": "system", "content": "be brief"}, user("a?")]
    assert read("sharegpt", path, turns=1) == [Script([opening])]
    assert read("sharegpt", path, turns=5) == [Script([opening, [user("b?")]])]


def test_what_is_answered_before_anything_was_asked_is_left_out_and_so_is_talk_without_a_user(tmp_path: Path) -> None:
    path = sharegpt(tmp_path, [said("gpt", "hello")], [said("gpt", "hello"), said("human", "a?")])
    assert read("sharegpt", path, turns=1) == [Script([[user("a?")]])]


def test_jsonl_has_prompts_or_messages_and_perhaps_a_length(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    path = jsonl(
        tmp_path,
        {"prompt": "a?", "output_tokens": 7},
        {"messages": [{"role": "user", "content": parts}], "max_tokens": 9},
        {"prompt": "c?"},
    )
    assert read("jsonl", path, turns=1) == [
        Script([[user("a?")]], 7),
        Script([[user("ab")]], 9),
        Script([[user("c?")]]),
    ]


def test_a_single_turn_sends_the_recorded_answers_and_several_ask_for_them_anew(tmp_path: Path) -> None:
    messages = [user("a?"), {"role": "assistant", "content": "A."}, user("b?")]
    path = jsonl(tmp_path, {"messages": messages})
    assert read("jsonl", path, turns=1) == [Script([messages])]
    assert read("jsonl", path, turns=2) == [Script([[user("a?")], [user("b?")]])]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "a"}, "neither a prompt nor messages"),
        ({"messages": []}, "neither a prompt nor messages"),
        ({"messages": ["a"]}, "without a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "not all text"),
        ({"messages": [{"role": "user"}]}, "not all text"),
        ({"prompt": "a", "max_tokens": 0}, "not a number of tokens"),
        ({"prompt": "a", "output_tokens": "9"}, "not a number of tokens"),
        ([], "not a JSON object"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: Any, words: str) -> None:
    path = jsonl(tmp_path, {"prompt": "good"}, row)
    with pytest.raises(SpecError, match=words) as caught:
        read("jsonl", path, turns=1)
    assert str(caught.value).startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ":1: not JSON"),
        ("{}", "not a list of conversations"),
        ('[{"conversations": [{"from": "human", "value": "a"}]}, {"text": "b"}]', "entry 2 has no list"),
        ('[{"conversations": [{"value": "a"}]}]', "entry 1 has a message without from"),
        ("[]", "has no prompts"),
    ],
)
def test_a_bad_sharegpt_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "share.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=words) as caught:
        read("sharegpt", path, turns=1)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for kind in ("sharegpt", "jsonl"):
        with pytest.raises(SpecError, match="missing"):
            read(kind, tmp_path / "missing", turns=1)
