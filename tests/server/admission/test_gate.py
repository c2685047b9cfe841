"""The door before the body: who is looked at there, by what, and what a refusal costs and says."""

import json
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from server.admission.admission import Admission
from server.admission.gate import Gate
from server.api.errors import error_response
from server.config import AdmissionSettings
from server.errors import Overloaded, ServeError, ShuttingDown
from server.request import ANYBODY, Caller
from tests.server.admission.tickets import Owner
from tests.support.asgi import Exchange, scope_of
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, serving

PATH = "/v1/generate"


class Judge(Admission):
    """Refuses everybody with `verdict`, and remembers who came."""

    def __init__(self, verdict: ServeError | None) -> None:
        super().__init__(AdmissionSettings(), max_wait=1)
        self.seen: list[tuple[Caller, int | None]] = []
        self._verdict = verdict

    def check(self, caller: Caller, body_bytes: int | None) -> None:
        self.seen.append((caller, body_bytes))
        if self._verdict is not None:
            raise self._verdict


class Door:
    def __init__(self, verdict: ServeError | None = None) -> None:
        self.judge = Judge(verdict)
        self.opened = True
        self.gate = Gate(self._app, self.judge, {PATH}, error_response, lambda: self.opened)

    async def knock(self, method: str = "POST", path: str = PATH, caller: Any = None, **headers: str) -> Exchange:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        scope = scope_of(method, path, named)
        if caller is not None:
            scope["state"]["caller"] = caller
        return await Exchange(self.gate, scope, [b""], plain=True)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("inside")(scope, receive, send)


async def test_who_may_enter_passes() -> None:
    exchange = await Door().knock(content_length="12")
    assert (exchange.status, exchange.body) == (200, b"inside")


async def test_who_may_not_gets_the_refusal() -> None:
    exchange = await Door(Overloaded(retry_after=7, figures={"reason": "predicted_wait"})).knock()
    assert (exchange.status, exchange.headers["retry-after"]) == (503, "7")
    assert (exchange.error["code"], exchange.error["reason"]) == ("server_overloaded", "predicted_wait")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", PATH), ("OPTIONS", PATH), ("POST", "/tokenize"), ("POST", f"{PATH}/"), ("GET", "/live")],
)
async def test_only_posts_that_generate_are_looked_at(method: str, path: str) -> None:
    door = Door(ShuttingDown())
    assert (await door.knock(method, path)).status == 200
    assert door.judge.seen == []


async def test_nobody_is_looked_at_before_there_is_an_engine_to_wait_for() -> None:
    door = Door(ShuttingDown())
    door.opened = False
    assert (await door.knock()).status == 200
    assert door.judge.seen == []


async def test_what_is_no_http_passes() -> None:
    passed: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope)

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    gate = Gate(app, Judge(ShuttingDown()), {PATH}, error_response, lambda: True)
    await gate({"type": "lifespan"}, receive, send)
    assert passed == [{"type": "lifespan"}]


@pytest.mark.parametrize(
    ("headers", "size"),
    [
        ({"content_length": "12"}, 12),
        ({"content_length": "0"}, 0),
        ({"transfer_encoding": "chunked"}, None),
        ({}, None),
        ({"content_length": "-1"}, None),
        ({"content_length": "1" * 12}, None),
        ({"content_length": "1 2"}, None),
    ],
)
async def test_a_bodys_size_is_what_its_header_says_as_far_as_it_can_be_trusted(
    headers: dict[str, str], size: int | None
) -> None:
    door = Door()
    await door.knock(**headers)
    assert door.judge.seen == [(ANYBODY, size)]


async def test_the_caller_is_who_the_ingress_layer_found() -> None:
    door, owner = Door(), Owner("somebody")
    await door.knock(caller=owner)
    await door.knock(caller="no caller")
    assert [caller for caller, _ in door.judge.seen] == [owner, ANYBODY]


async def knock_unread(site: Served[FakeEngine], path: str) -> list[Message]:
    """What is answered to a request whose body must not be asked for."""
    answers: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        answers.append(message)

    await site.app(scope_of("POST", path, {"content-length": "100"}), receive, send)
    return answers


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/messages", "/v1/responses"])
async def test_an_overloaded_server_refuses_before_the_body_in_each_protocols_envelope(
    engine: FakeEngine, path: str
) -> None:
    async with serving(engine, "admission.max_batch_size=1", "admission.max_wait=1") as site:
        admission = site.services.admission
        running = site.open(CHAT, chat())
        await engine.sequence()
        for _ in range(50):
            admission.forecast.held(5.0)
        start, body = await knock_unread(site, path)
        assert start["status"] == 503
        assert dict(start["headers"])[b"retry-after"] == b"4"
        told = json.loads(body["body"])
        assert told["error"]["reason"] == "predicted_wait"
        if path == "/v1/messages":
            assert told["type"] == "error"
            assert told["error"]["type"] == "overloaded_error"
            assert told["request_id"]
        else:
            assert told["error"]["code"] == "server_overloaded"
            assert told["error"]["type"] == "overloaded_error"
        assert admission.refusals == {"predicted_wait": 1}
        engine.sequences[0].end()
        assert (await running).status == 200


async def test_other_paths_answer_an_overloaded_servers_clients(engine: FakeEngine) -> None:
    async with serving(engine) as site:
        site.services.admission.close()
        assert (await site.get("/live")).status == 200
        answer = await site.post("/tokenize", {"model": "smollm2-135m", "prompt": "Hi"})
        assert answer.status == 200
        assert (await site.post(CHAT, chat())).error["code"] == "server_shutting_down"
