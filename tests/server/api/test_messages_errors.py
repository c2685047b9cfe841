"""Whatever fails under /v1/messages is told in Anthropic's envelope, and elsewhere in OpenAI's."""

import pytest

from server.api import messages as messages_api
from server.errors import EngineDied, EngineFailed, InternalError, RunawayOutput, ServeError, SlowReader
from server.streaming.choice import Choice
from tests.support.engines import FakeEngine
from tests.support.messages import COUNT, MESSAGES, ask, error_of
from tests.support.site import CHAT, Served, chat, serving

STREAMED = pytest.mark.parametrize("stream", [True, False])
BOTH = pytest.mark.parametrize("path", [MESSAGES, COUNT])


@pytest.mark.parametrize("path", [f"{MESSAGES}/batches", f"{COUNT}/x", f"{MESSAGES}/%2e%2e/x"])
async def test_an_unknown_path_below(site: Served[FakeEngine], path: str) -> None:
    answer = await site.get(path)
    assert (answer.status, error_of(answer)["type"]) == (404, "not_found_error")
    assert answer.json["request_id"] is None


@pytest.mark.parametrize("path", ["/v1/messagesx", "/v1/message", "/v1", "/x/v1/messages"])
async def test_an_unknown_path_beside(site: Served[FakeEngine], path: str) -> None:
    answer = await site.get(path)
    assert (answer.status, answer.error["code"]) == (404, "not_found")


@BOTH
async def test_a_method_that_the_path_does_not_answer(site: Served[FakeEngine], path: str) -> None:
    answer = await site.get(path)
    assert (answer.status, error_of(answer)["type"]) == (405, "invalid_request_error")
    assert answer.headers["allow"] == "POST"


@BOTH
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model": NaN}', b"\xff", b'{"a": ' * 5000])
async def test_a_body_that_is_no_request(site: Served[FakeEngine], path: str, body: bytes) -> None:
    answer = await site.post(path, body)
    assert (answer.status, error_of(answer)["type"]) == (400, "invalid_request_error")


@BOTH
async def test_an_unknown_model(site: Served[FakeEngine], path: str) -> None:
    answer = await site.post(path, ask(model="claude"))
    assert (answer.status, error_of(answer)["type"]) == (404, "not_found_error")


@BOTH
async def test_a_body_that_is_too_large(engine: FakeEngine, path: str) -> None:
    async with serving(engine, "http.max_body_bytes=1024") as site:
        answer = await site.post(path, ask(system="x" * 2000))
        assert (answer.status, error_of(answer)["type"]) == (413, "request_too_large")


@BOTH
async def test_while_the_model_loads(engine: FakeEngine, path: str) -> None:
    engine.may_start.clear()
    async with serving(engine, ready=False) as site:
        answer = await site.post(path, ask())
        assert (answer.status, error_of(answer)["type"]) == (503, "overloaded_error")
        assert int(answer.headers["retry-after"]) > 0


@BOTH
async def test_while_draining(site: Served[FakeEngine], path: str) -> None:
    site.services.draining = True
    answer = await site.post(path, ask())
    assert (answer.status, error_of(answer)["type"]) == (503, "overloaded_error")
    assert answer.headers["connection"] == "close"


async def test_more_sequences_than_there_are_permits(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=1", "admission.max_queue_size=0") as site:
        running = site.open(MESSAGES, ask())
        sequence = await engine.sequence()
        answer = await site.post(MESSAGES, ask())
        assert (answer.status, error_of(answer)["type"]) == (503, "overloaded_error")
        assert int(answer.headers["retry-after"]) > 0
        sequence.end()
        assert (await running).status == 200


@STREAMED
async def test_a_request_that_takes_too_long(engine: FakeEngine, stream: bool) -> None:
    async with serving(engine, "admission.request_timeout=0.05") as site:
        answer = await site.post(MESSAGES, ask(stream=stream))
        assert (answer.status, error_of(answer)["type"]) == (504, "timeout_error")


@STREAMED
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (EngineFailed(), 500, "api_error"),
        (EngineDied(), 503, "overloaded_error"),
        (SlowReader(), 408, "timeout_error"),
        (RunawayOutput(), 422, "invalid_request_error"),
    ],
)
async def test_a_failure_before_the_first_token_is_a_status(
    site: Served[FakeEngine], stream: bool, error: ServeError, status: int, kind: str
) -> None:
    exchange = site.open(MESSAGES, ask(stream=stream))
    (await site.engine.sequence()).push(error=error)
    await exchange
    assert exchange.status == status
    assert error_of(exchange) == {"type": kind, "message": error.message}
    assert exchange.json["request_id"] == exchange.headers["request-id"] == exchange.headers["x-request-id"]


@STREAMED
async def test_a_handler_that_fails_tells_nothing_of_why(
    site: Served[FakeEngine], stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[str]:
        raise RuntimeError("secret /etc/path")

    monkeypatch.setattr(Choice, "detokenize", broken)
    exchange = site.open(MESSAGES, ask(stream=stream))
    (await site.engine.sequence()).say("x")
    await exchange
    assert exchange.status == 500
    assert error_of(exchange) == {"type": "api_error", "message": InternalError.default_message}


async def test_a_bug_in_a_route_tells_nothing_of_itself(
    site: Served[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret /etc/path")

    monkeypatch.setattr(messages_api, "check_model", broken)
    exchange = site.open(MESSAGES, ask())
    with pytest.raises(RuntimeError):  # on to the HTTP server, which logs it
        await exchange
    assert exchange.status == 500
    assert error_of(exchange) == {"type": "api_error", "message": InternalError.default_message}


async def test_other_paths_keep_their_envelope(site: Served[FakeEngine]) -> None:
    answer = await site.post(CHAT, chat(temperature=-1))
    assert (answer.status, answer.error["param"]) == (400, "temperature")
    assert "request-id" not in answer.headers
