"""The Responses protocol as a strict client reads it."""

import json
from typing import Any

from server.request import Caller
from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.site import MODEL, Served
from tests.support.waiting import until

RESPONSES = "/v1/responses"
ENDS = ("response.completed", "response.incomplete", "response.failed")

TOOL = {
    "type": "function",
    "name": "weather",
    "description": "How the weather is",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": "Hi", **fields}


def events(body: bytes) -> list[dict[str, Any]]:
    """Every event, whose name is its type and whose number is its place after the first one's."""
    found: list[dict[str, Any]] = []
    for block in body.decode().split("\n\n"):
        if not block.strip("\n"):
            continue
        *before, name, data = block.lstrip("\n").split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        assert before in ([], [f"id: {payload['sequence_number']}"])
        found.append(payload)
    numbers = [event["sequence_number"] for event in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    return found


def text_of(found: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")


def final_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The response object of the stream's end."""
    assert found[-1]["type"] in ENDS
    assert not any(event["type"] in ENDS for event in found[:-1])
    response: dict[str, Any] = found[-1]["response"]
    return response


def request(
    site: Served[Any], method: str, path: str, headers: dict[str, str] | None = None, owner: str | None = None
) -> Exchange:
    scope = scope_of(method, path, headers)
    if owner is not None:
        scope["state"]["caller"] = caller(owner)
    return Exchange(site.app, scope, [b""])


def caller(owner: str) -> Caller:
    found = Caller()
    found.owner = owner
    return found


def post_as(site: Served[Any], owner: str, payload: dict[str, Any]) -> Exchange:
    scope = scope_of("POST", RESPONSES, {"content-type": "application/json"})
    scope["state"]["caller"] = caller(owner)
    return Exchange(site.app, scope, [json.dumps(payload).encode()])


async def answered(site: Served[FakeEngine], text: str = "Paris", /, **fields: Any) -> dict[str, Any]:
    """The response object of an answer that says `text`."""
    exchange = site.open(RESPONSES, ask(**fields))
    sequence = await site.engine.sequence(len(site.engine.sequences))
    sequence.say(text)
    sequence.end()
    response: dict[str, Any] = (await exchange).json
    return response


async def in_background(site: Served[FakeEngine], **fields: Any) -> dict[str, Any]:
    """A response that has begun in the background: what its call was answered with."""
    response: dict[str, Any] = (await site.post(RESPONSES, ask(background=True, **fields))).json
    await until(lambda: site.engine.sequences)
    return response
