"""Anthropic's Messages protocol, read as a strict client does."""

import json
import re
from typing import Any

from tests.support.asgi import Exchange
from tests.support.site import MODEL

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}], **fields}


def weather(**fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"name": "get_weather", "description": "The weather.", "input_schema": schema, **fields}


def events(body: bytes) -> list[dict[str, Any]]:
    """Every event as its payload; any byte that belongs to none fails the test."""
    assert not body or body.endswith(b"\n\n")
    found = []
    for block in body.removesuffix(b"\n\n").split(b"\n\n") if body else ():
        name, data = block.decode().split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert data.startswith("data: ")
        assert name == f"event: {payload['type']}"
        found.append(payload)
    return found


def assembled(body: bytes) -> dict[str, Any]:
    """The message that a whole stream adds up to."""
    found = [event for event in events(body) if event["type"] != "ping"]
    start, *middle, delta, stop = found
    assert (start["type"], delta["type"], stop) == ("message_start", "message_delta", {"type": "message_stop"})
    message: dict[str, Any] = start["message"]
    assert message["content"] == []
    assert message["stop_reason"] is None
    content: list[dict[str, Any]] = []
    pieces: list[str] = []
    open_block = False
    for event in middle:
        match event["type"]:
            case "content_block_start":
                assert not open_block
                assert event["index"] == len(content)
                content.append(event["content_block"])
                open_block, pieces = True, []
            case "content_block_delta":
                assert open_block
                assert event["index"] == len(content) - 1
                block, change = content[-1], event["delta"]
                if change["type"] == "input_json_delta":
                    pieces.append(change["partial_json"])
                else:
                    block[FIELDS[change["type"]]] += change[FIELDS[change["type"]]]
            case "content_block_stop":
                assert open_block
                assert event == {"type": "content_block_stop", "index": len(content) - 1}
                open_block = False
                if content[-1]["type"] == "tool_use":
                    assert content[-1]["input"] == {}
                    content[-1]["input"] = _object("".join(pieces))
            case other:
                raise AssertionError(other)
    assert not open_block
    changed = {name: value for name, value in delta["delta"].items() if name != "container"}
    return message | {"content": content} | changed | {"usage": message["usage"] | delta["usage"]}


def error_of(exchange: Exchange) -> dict[str, str]:
    """The error of an answer that is one, in exactly Anthropic's shape."""
    assert exchange.headers["content-type"] == "application/json"
    assert list(exchange.json) == ["type", "error", "request_id"]
    assert exchange.json["type"] == "error"
    error: dict[str, str] = exchange.json["error"]
    assert list(error)[:2] == ["type", "message"]  # figures may follow
    return error


def anonymous(data: bytes) -> bytes:
    """Without ids."""
    data = re.sub(rb'"msg_[0-9a-f]{32}"', b'"msg_ID"', data)
    data = re.sub(rb'"req-[0-9a-f]{32}"', b'"req-ID"', data)
    return re.sub(rb'"toolu_[0-9a-f]{24}"', b'"toolu_ID"', data)


def _object(text: str) -> Any:
    """As a body has it: empty where the text is no object."""
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
