"""Prompts of a file: ShareGPT's JSON, or JSONL with a `prompt` or `messages` to a line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from bench.run.spec import SpecError
from bench.run.traces import json_lines

Message = Mapping[str, str]
"""With `role` and `content`."""

# Who speaks, by the names found in ShareGPT's files; anybody else is one who answers.
SPEAKERS = {"human": "user", "user": "user", "system": "system"}


@dataclass(frozen=True, slots=True)
class Script:
    """What the user's side says, turn by turn. No `output_tokens`: the file doesn't say how long answers may be."""

    turns: Sequence[Sequence[Message]]
    output_tokens: int | None = None


def read(kind: Literal["sharegpt", "jsonl"], path: Path, turns: int) -> list[Script]:
    """At least one; with at most `turns` turns each. Raises SpecError that names the file and the place in it."""
    readers: dict[str, Callable[[Path, int], Iterable[Script]]] = {"sharegpt": _sharegpt, "jsonl": _jsonl}
    try:
        found = list(readers[kind](path, turns))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {error}") from None
    if not found:
        raise SpecError(f"{path} has no prompts")
    return found


def _sharegpt(path: Path, turns: int) -> Iterable[Script]:
    """Entries in which no user speaks are left out: the published files have some."""
    for number, entry in enumerate(_entries(path), start=1):
        place = f"{path}: entry {number}"
        if not isinstance(entry, dict) or not isinstance(said := entry.get("conversations"), list):
            raise SpecError(f"{place} has no list of conversations")
        messages = [_sharegpt_message(place, one) for one in said]
        if found := _turns(messages):
            yield Script(found[:turns])


def _entries(path: Path) -> list[Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise SpecError(f"{path}:{error.lineno}: not JSON: {error}") from None
    if not isinstance(found, list):
        raise SpecError(f"{path}: not a list of conversations")
    return found


def _sharegpt_message(place: str, one: Any) -> Message:
    if not isinstance(one, dict) or not isinstance(one.get("from"), str) or not isinstance(one.get("value"), str):
        raise SpecError(f"{place} has a message without from and value")
    return {"role": SPEAKERS.get(one["from"], "assistant"), "content": one["value"]}


def _jsonl(path: Path, turns: int) -> Iterable[Script]:
    with path.open(encoding="utf-8-sig") as file:
        for number, row in json_lines(path, file):
            place = f"{path}:{number}"
            messages = _messages(place, row)
            # A single turn sends all there is, with the answers that were recorded.
            found = [messages] if turns == 1 else _turns(messages)[:turns]
            if not found:
                raise SpecError(f"{place}: no message of a user")
            yield Script(found, _output_tokens(place, row))


def _messages(place: str, row: Mapping[str, Any]) -> list[Message]:
    if isinstance(prompt := row.get("prompt"), str):
        return [{"role": "user", "content": prompt}]
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise SpecError(f"{place}: neither a prompt nor messages")
    return [_message(place, one) for one in messages]


def _message(place: str, one: Any) -> Message:
    if not isinstance(one, dict) or not isinstance(role := one.get("role"), str):
        raise SpecError(f"{place}: a message without a role")
    return {"role": role, "content": _text(place, one.get("content"))}


def _text(place: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if len(texts) < len(parts):
        raise SpecError(f"{place}: a message whose content is not all text")
    return "".join(texts)


def _output_tokens(place: str, row: Mapping[str, Any]) -> int | None:
    found = row.get("output_tokens", row.get("max_tokens"))
    if found is not None and (type(found) is not int or found < 1):
        raise SpecError(f"{place}: not a number of tokens: {found!r}")
    return found


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    """What there is to say before each answer: the answers themselves are the server's to give."""
    turns: list[list[Message]] = []
    opening: list[Message] = []
    for message in messages:
        if message["role"] == "user":
            turns.append([*opening, message])
            opening = []
        elif message["role"] != "assistant":
            opening.append(message)
    return turns
