"""Reads a stream as a strict client does: any other byte than those of `data: …` events fails the test."""

import json
from typing import Any

DONE = "[DONE]"


def events(body: bytes) -> list[Any]:
    """The payloads of a body's events, JSON parsed; empty lines between them are keep-alives."""
    assert b"\r" not in body
    assert not body or body.endswith(b"\n\n")
    found: list[Any] = []
    for line in body.decode().split("\n"):
        if line:
            assert line.startswith("data: "), line
            payload = line.removeprefix("data: ")
            found.append(payload if payload == DONE else json.loads(payload))
    return found


def text_of(found: list[Any], index: int = 0) -> str:
    """The joined text of one choice, of either protocol."""
    pieces = []
    for event in found:
        if event == DONE:
            continue
        for choice in event.get("choices", ()):
            if choice["index"] == index:
                pieces.append(choice["text"] if "text" in choice else choice["delta"].get("content", ""))
    return "".join(pieces)


def finish_reasons(found: list[Any]) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for event in found:
        for choice in event.get("choices", ()) if event != DONE else ():
            if choice["finish_reason"] is not None:
                assert choice["index"] not in reasons
                reasons[choice["index"]] = choice["finish_reason"]
    return reasons
