import pytest

from server.api import chat as chat_api
from server.errors import EngineDied, EngineFailed, InternalError, InvalidRequest, ServeError
from server.streaming.choice import Choice
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.sse import DONE, text_of
from tests.support.waiting import turns, until

STREAMED = pytest.mark.parametrize("stream", [True, False])


async def test_an_unknown_path(site: Served[FakeEngine]) -> None:
    for path in ("/", "/v1/embeddings", "/v1/chat/completions/x", "/%2e%2e/etc"):
        answer = await site.get(path)
        assert (answer.status, answer.error["code"]) == (404, "not_found")


@pytest.mark.parametrize(("method", "path"), [("GET", CHAT), ("PUT", COMPLETIONS), ("POST", "/live"), ("HEAD", CHAT)])
async def test_a_method_that_a_path_does_not_answer(site: Served[FakeEngine], method: str, path: str) -> None:
    answer = await site.send(method, path)
    assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] in ("GET", "POST")


@pytest.mark.parametrize("limit", ["0", "-1", "x", "", "1.5", "10001", "9" * 400, "%ff", "NaN"])
async def test_a_wrong_query_parameter_is_named(site: Served[FakeEngine], limit: str) -> None:
    answer = await site.get(f"/debug/requests?limit={limit}")
    assert (answer.status, answer.error["param"]) == (400, "limit")


@STREAMED
async def test_an_engine_error_before_the_first_token_is_a_status(site: Served[FakeEngine], stream: bool) -> None:
    exchange = site.open(CHAT, chat(stream=stream))
    (await site.engine.sequence()).push(error=EngineFailed())
    await exchange
    assert (exchange.status, exchange.error["code"]) == (500, "engine_error")
    assert exchange.headers["x-request-id"].startswith("req-")


@STREAMED
async def test_an_engine_error_before_anything_was_shown_is_a_status_also_when_a_later_choice_had_text(
    site: Served[FakeEngine], stream: bool
) -> None:
    exchange = site.open(CHAT, chat(stream=stream, n=2))
    second = await site.engine.sequence(1)
    second.say("held back, since choice 0 has not appeared")
    await turns()
    site.engine.sequences[0].push(error=EngineFailed())
    await exchange
    assert (exchange.status, exchange.error["code"]) == (500, "engine_error")


@pytest.mark.parametrize(
    ("error", "status"), [(InvalidRequest("Not this."), 400), (EngineDied(), 503), (EngineFailed(), 500)]
)
@STREAMED
async def test_an_engine_that_refuses_at_once(
    site: Served[FakeEngine], stream: bool, error: ServeError, status: int
) -> None:
    site.engine.refusal = error
    answer = await site.post(CHAT, chat(stream=stream, n=2))
    assert (answer.status, answer.error["message"]) == (status, error.message)
    assert site.idle


async def test_an_engine_that_refuses_one_of_several_choices_is_let_go_of_the_others(site: Served[FakeEngine]) -> None:
    submit = site.engine.submit

    def refuse_the_second(request: object, on_step: object, on_released: object) -> object:
        if site.engine.sequences:
            raise EngineFailed
        return submit(request, on_step, on_released)  # type: ignore[arg-type]

    site.engine.submit = refuse_the_second  # type: ignore[method-assign,assignment]
    answer = await site.post(CHAT, chat(n=3))
    assert answer.status == 500
    assert [sequence.aborted for sequence in site.engine.sequences] == [True]
    assert site.idle


@pytest.mark.parametrize(("path", "payload"), [(CHAT, chat), (COMPLETIONS, completion)], ids=["chat", "text"])
async def test_an_error_after_the_first_byte_is_an_event_and_no_finish_is_invented(
    site: Served[FakeEngine], path: str, payload: object
) -> None:
    exchange = site.open(path, payload(stream=True, n=2, stream_options={"include_usage": True}))  # type: ignore[operator]
    await site.engine.sequence(1)
    site.engine.sequences[0].say("so far")
    await until(lambda: exchange.writes)
    site.engine.sequences[1].push(error=EngineDied())
    site.engine.sequences[0].say("never shown")
    await exchange
    *shown, error, done = exchange.events
    assert text_of(shown) == "so far"
    assert all(choice["finish_reason"] is None for event in shown for choice in event["choices"])
    assert list(error) == ["error"]
    assert error["error"]["code"] == "engine_dead"
    assert done == DONE
    assert exchange.complete
    assert site.engine.in_flight == 0


async def test_an_error_right_behind_the_first_token_comes_after_it(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True))
    sequence = await site.engine.sequence()
    sequence.say("so far")
    sequence.push(error=EngineFailed())
    await exchange
    assert exchange.status == 200
    assert text_of(exchange.events) == "so far"
    assert exchange.events[-2]["error"]["code"] == "engine_error"


@STREAMED
async def test_a_handler_that_fails_tells_nothing_of_why(
    site: Served[FakeEngine], stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[str]:
        raise RuntimeError("secret /etc/path")

    monkeypatch.setattr(Choice, "detokenize", broken)
    exchange = site.open(CHAT, chat(stream=stream))
    (await site.engine.sequence()).say("x")
    await exchange
    assert (exchange.status, exchange.error["code"]) == (500, "internal_error")
    assert b"secret" not in exchange.body
    assert exchange.error["message"] == InternalError.default_message


async def test_a_bug_in_a_route_tells_nothing_of_itself(
    site: Served[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret /etc/path")

    monkeypatch.setattr(chat_api, "check_model", broken)
    exchange = site.open(CHAT, chat())
    with pytest.raises(RuntimeError):  # on to the HTTP server, which logs it
        await exchange
    assert (exchange.status, exchange.error["code"]) == (500, "internal_error")
    assert b"secret" not in exchange.body
    assert site.idle


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_while_the_model_loads_requests_are_told_to_come_back(engine: FakeEngine, path: str) -> None:
    engine.may_start.clear()
    async with serving(engine, ready=False) as site:
        answer = await site.post(path, chat() if path == CHAT else completion())
        assert (answer.status, answer.error["code"]) == (503, "model_not_ready")
        assert int(answer.headers["retry-after"]) > 0
        assert "connection" not in answer.headers
        engine.may_start.set()
        await until(lambda: site.services.ready)
        exchange = site.open(path, chat() if path == CHAT else completion())
        (await engine.sequence()).end()
        assert (await exchange).status == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_while_draining_requests_are_refused_and_their_connections_closed(
    site: Served[FakeEngine], path: str
) -> None:
    site.services.draining = True
    answer = await site.post(path, chat() if path == CHAT else completion())
    assert (answer.status, answer.error["code"]) == (503, "server_shutting_down")
    assert answer.headers["connection"] == "close"
    assert int(answer.headers["retry-after"]) > 0


async def test_a_dead_engine_is_not_said_to_be_loading(site: Served[FakeEngine]) -> None:
    site.engine.alive = False
    for answer in (await site.post(CHAT, chat()), await site.get("/ready"), await site.get("/health")):
        assert (answer.status, answer.error["code"]) == (503, "engine_dead")


@STREAMED
async def test_more_sequences_than_there_are_permits(engine: FakeEngine, stream: bool) -> None:
    async with serving(engine, "admission.max_batch_size=2", "admission.max_queue_size=0") as site:
        running = site.open(CHAT, chat(n=2))
        await engine.sequence(1)
        answer = await site.post(CHAT, chat(stream=stream))
        assert (answer.status, answer.error["code"]) == (503, "server_overloaded")
        assert int(answer.headers["retry-after"]) > 0
        for sequence in engine.sequences:
            sequence.end()
        assert (await running).status == 200
        again = site.open(CHAT, chat(stream=stream))
        (await engine.sequence(2)).end()
        assert (await again).status == 200
        assert site.idle


@STREAMED
async def test_a_request_that_takes_too_long(engine: FakeEngine, stream: bool) -> None:
    async with serving(engine, "admission.request_timeout=0.05") as site:
        answer = await site.post(CHAT, chat(stream=stream))
        assert (answer.status, answer.error["code"]) == (504, "request_timeout")
        assert engine.in_flight == 0
        assert site.idle
