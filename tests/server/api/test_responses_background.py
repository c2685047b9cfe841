"""Responses that run in the background: readers come, go and come back, and generation takes no notice of them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from server.errors import EngineFailed, ShuttingDown
from server.streaming import event_log
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.responses import RESPONSES, ask, events, final_of, in_background, request, text_of
from tests.support.site import Served, serving
from tests.support.waiting import turns, until

BROWSER = {"accept": "text/event-stream"}
WORDS = [" one", " two", " three", " four", " five"]


@pytest.fixture
async def small(engine: FakeEngine) -> AsyncIterator[Served[FakeEngine]]:
    """Whose event logs hold little more than the end of a response."""
    async with serving(engine, "responses.event_log_bytes=1024") as served:
        yield served


def where(response: dict[str, Any], starting_after: int | None = None) -> str:
    after = "" if starting_after is None else f"&starting_after={starting_after}"
    return f"{RESPONSES}/{response['id']}?stream=true{after}"


async def status_of(site: Served[Any], response: dict[str, Any]) -> str:
    status: str = (await site.get(f"{RESPONSES}/{response['id']}")).json["status"]
    return status


async def finished(site: Served[FakeEngine], *texts: str) -> dict[str, Any]:
    """A background response that has said `texts`."""
    response = await in_background(site)
    for text in texts or WORDS:
        site.engine.sequences[0].say(text)
    site.engine.sequences[0].end()
    await until(lambda: site.idle)
    return response


async def test_the_call_is_answered_at_once_and_the_response_goes_on(site: Served[FakeEngine]) -> None:
    response = await in_background(site)
    assert (response["status"], response["output"], response["background"]) == ("queued", [], True)
    assert await status_of(site, response) == "queued"
    site.engine.sequences[0].say("Paris")
    assert await status_of(site, response) == "in_progress"
    site.engine.sequences[0].end()
    await until(lambda: site.idle)
    found = (await site.get(f"{RESPONSES}/{response['id']}")).json
    assert (found["status"], found["output"][0]["content"][0]["text"]) == ("completed", "Paris")


async def test_it_is_one_request_in_the_records_and_ends_when_it_ends(site: Served[FakeEngine]) -> None:
    response = await in_background(site)
    site.engine.sequences[0].say("Paris")
    assert site.services.metrics.in_flight == 1
    site.engine.sequences[0].end()
    (record,) = await site.records()
    assert record["id"].removeprefix("req-") == response["id"].removeprefix("resp_")
    assert (record["endpoint"], record["status"], record["outcome"]) == ("responses", 200, "ok")
    assert (record["output_tokens"], record["finish_reasons"]) == (2, ["stop"])
    assert site.services.metrics.requests == {("responses", "ok"): 1}


async def test_its_own_stream_may_be_left_and_taken_up_again(site: Served[FakeEngine]) -> None:
    exchange = site.open(RESPONSES, ask(background=True, stream=True))
    (await site.engine.sequence()).say("Par")
    await until(lambda: "Par" in text_of(events(exchange.body)))
    exchange.disconnect()
    await exchange
    assert not site.engine.sequences[0].aborted
    seen = events(exchange.body)
    again = site.send("GET", where(seen[0]["response"], seen[-1]["sequence_number"]))
    site.engine.sequences[0].say("is")
    site.engine.sequences[0].end()
    rest = events((await again).body)
    assert [event["sequence_number"] for event in seen + rest] == list(range(len(seen + rest)))
    assert text_of(seen + rest) == "Paris"
    kinds = [event["type"] for event in seen[:3]]
    assert kinds == ["response.created", "response.queued", "response.in_progress"]
    assert final_of(rest)["status"] == "completed"


async def test_from_wherever_a_reader_goes_on_nothing_is_missing_or_double(site: Served[FakeEngine]) -> None:
    response = await finished(site)
    uncut = (await site.get(where(response))).body
    count = len(events(uncut))
    assert text_of(events(uncut)) == "".join(WORDS)
    for cut in range(count):
        rest = (await site.get(where(response, cut))).body
        before = b"".join(part + b"\n\n" for part in uncut.split(b"\n\n")[: cut + 1])
        assert before + rest == uncut


async def test_readers_at_any_position_follow_a_running_response(site: Served[FakeEngine]) -> None:
    response = await in_background(site)
    readers: list[Exchange] = []
    for text in WORDS:
        readers.append(site.send("GET", where(response)))
        readers.append(site.send("GET", where(response, 3)))
        await turns()
        site.engine.sequences[0].say(text)
        await turns()
    site.engine.sequences[0].end()
    bodies = [(await reader).body for reader in readers]
    assert len({*bodies[::2]}) == len({*bodies[1::2]}) == 1
    assert bodies[0].endswith(bodies[1])
    assert text_of(events(bodies[0])) == "".join(WORDS)


async def test_a_browser_gets_numbers_and_comes_back_with_the_last_one(site: Served[FakeEngine]) -> None:
    response = await finished(site)
    first = await request(site, "GET", where(response), BROWSER)
    found = events(first.body)
    assert first.body.count(b"id: ") == len(found)
    last = found[-1]["sequence_number"]
    again = await request(site, "GET", where(response), BROWSER | {"last-event-id": str(last - 2)})
    assert events(again.body) == found[-2:]
    assert (await request(site, "GET", where(response), BROWSER | {"last-event-id": str(last)})).status == 204
    plain = await site.get(where(response, last))
    assert (plain.status, plain.body) == (200, b"")
    assert b"id: " not in (await site.get(where(response))).body


async def test_keep_alives_have_a_form_that_each_kind_of_reader_survives(engine: FakeEngine) -> None:
    async with serving(engine, "http.keepalive=0.01") as site:
        response = await in_background(site)
        plain = site.send("GET", where(response))
        browser = request(site, "GET", where(response), BROWSER)
        await until(lambda: len(plain.writes) > 2 and len(browser.writes) > 2)
        engine.sequences[0].end()
        await plain
        await browser
    assert set(plain.writes[1:-1]) == {b"\n"}
    assert set(browser.writes[1:-1]) == {b": k\n"}


async def test_what_has_left_the_ring_is_gone_and_the_end_stays(small: Served[FakeEngine]) -> None:
    response = await finished(small, *WORDS * 20)
    gone = await small.get(where(response, 3))
    assert (gone.status, gone.error["code"]) == (410, "position_evicted")
    assert (await small.get(where(response))).status == 410
    log = small.services.responses.get(response["id"], None).run.log  # type: ignore[union-attr]
    rest = events((await small.get(where(response, log.first - 1))).body)
    assert final_of(rest)["status"] == "completed"


async def test_a_reader_overtaken_by_the_ring_is_told_and_generation_goes_on(
    small: Served[FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "READ_BYTES", 1)
    response = await in_background(small)
    slow = small.send("GET", where(response))
    await until(lambda: slow.writes)
    slow.connection.pause()
    for text in WORDS * 20:
        small.engine.sequences[0].say(text)
        await turns()
    small.engine.sequences[0].end()
    await until(lambda: small.idle)
    slow.connection.resume()
    last = events((await slow).body)[-1]
    assert (last["type"], last["code"], last["error"]["type"]) == ("error", "position_evicted", "invalid_request_error")
    assert await status_of(small, response) == "completed"


async def test_cancelling_ends_it_at_once_for_the_engine_and_for_every_reader(site: Served[FakeEngine]) -> None:
    response = await in_background(site)
    site.engine.sequences[0].say("Par")
    readers = [site.send("GET", where(response)) for _ in range(3)]
    await until(lambda: all(reader.writes for reader in readers))
    cancelled = (await request(site, "POST", f"{RESPONSES}/{response['id']}/cancel")).json
    assert cancelled["status"] == "cancelled"
    assert cancelled["output"][0]["content"][0]["text"] == "Par"
    for reader in readers:
        found = events((await reader).body)
        assert (found[-1]["type"], final_of(found)) == ("response.incomplete", cancelled)
    await until(lambda: site.idle)
    assert site.engine.sequences[0].aborted
    again = await site.get(where(response, 5))
    assert final_of(events(again.body)) == cancelled
    assert (await request(site, "POST", f"{RESPONSES}/{response['id']}/cancel")).json == cancelled
    assert site.services.metrics.requests == {("responses", "response_cancelled"): 1}


async def test_one_cancelled_in_the_queue_never_was_in_progress(site: Served[FakeEngine]) -> None:
    response = await in_background(site)
    await request(site, "POST", f"{RESPONSES}/{response['id']}/cancel")
    kinds = [event["type"] for event in events((await site.get(where(response))).body)]
    assert kinds == ["response.created", "response.queued", "response.incomplete"]


async def test_cancelling_after_the_end_changes_nothing(site: Served[FakeEngine]) -> None:
    response = await finished(site)
    assert (await request(site, "POST", f"{RESPONSES}/{response['id']}/cancel")).json["status"] == "completed"


async def test_deleting_a_running_response_cancels_it(site: Served[FakeEngine]) -> None:
    response = await in_background(site)
    reader = site.send("GET", where(response))
    await until(lambda: reader.writes)
    assert (await request(site, "DELETE", f"{RESPONSES}/{response['id']}")).json["deleted"] is True
    assert final_of(events((await reader).body))["status"] == "cancelled"
    await until(lambda: site.idle)
    assert site.engine.sequences[0].aborted
    assert (await site.get(where(response))).status == 404
    assert len(site.services.responses) == 0


async def test_a_failure_is_kept_and_replayed(site: Served[FakeEngine]) -> None:
    response = await in_background(site)
    site.engine.sequences[0].push(error=EngineFailed())
    await until(lambda: site.idle)
    found = events((await site.get(where(response))).body)
    assert found[-1]["type"] == "response.failed"
    assert final_of(found)["error"]["code"] == "engine_error"
    assert (await site.get(f"{RESPONSES}/{response['id']}")).json == final_of(found)


@pytest.mark.parametrize("end", ["cancel", "fail", "run"])
async def test_only_an_answer_that_is_whole_can_be_gone_on_from(site: Served[FakeEngine], end: str) -> None:
    response = await in_background(site)
    if end == "cancel":
        await request(site, "POST", f"{RESPONSES}/{response['id']}/cancel")
    elif end == "fail":
        site.engine.sequences[0].push(error=EngineFailed())
    exchange = await site.post(RESPONSES, ask(previous_response_id=response["id"]))
    assert (exchange.status, exchange.error["param"]) == (400, "previous_response_id")


async def test_a_shutdown_ends_it_like_any_stream(site: Served[FakeEngine]) -> None:
    response = await in_background(site)
    reader = site.send("GET", where(response))
    await until(lambda: reader.writes)
    site.services.pipeline.fail_all(ShuttingDown())
    found = events((await reader).body)
    assert final_of(found)["error"]["code"] == "server_shutting_down"
    await until(lambda: site.idle)


async def test_one_that_the_engine_refuses_is_refused_at_once(site: Served[FakeEngine]) -> None:
    site.engine.refusal = EngineFailed()
    exchange = await site.post(RESPONSES, ask(background=True))
    assert (exchange.status, exchange.error["code"]) == (500, "engine_error")
    assert len(site.services.responses) == 0
    (record,) = await site.records()
    assert (record["status"], record["outcome"]) == (500, "engine_error")


async def test_there_is_a_bound_on_those_that_run(engine: FakeEngine) -> None:
    async with serving(engine, "responses.store_count=2") as site:
        for _ in range(2):
            assert (await site.post(RESPONSES, ask(background=True))).status == 200
        refused = await site.post(RESPONSES, ask(background=True))
        assert (refused.status, refused.error["code"]) == (503, "server_overloaded")
        for sequence in engine.sequences:
            sequence.end()
        await until(lambda: site.idle)
        assert (await site.post(RESPONSES, ask(background=True))).status == 200
        assert len(site.services.responses) == 2


async def test_a_response_whose_engine_is_faster_than_its_call_is_whole(scripted: Any) -> None:
    async with serving(scripted(stop_after=3)) as site:
        answers = await asyncio.gather(*(site.post(RESPONSES, ask(background=True)) for _ in range(20)))
        await until(lambda: site.idle)
        for answer in answers:
            assert await status_of(site, answer.json) == "completed"
        assert site.services.metrics.requests == {("responses", "ok"): 20}
