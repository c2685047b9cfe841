import json

import pytest

from server.request import FinishReason
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion
from tests.support.sse import DONE, events, finish_reasons, text_of
from tests.support.waiting import turns, until

BOTH = pytest.mark.parametrize(
    ("path", "payload"), [(CHAT, chat(stream=True)), (COMPLETIONS, completion(stream=True))], ids=["chat", "text"]
)


async def opened(exchange: Exchange, engine: FakeEngine) -> Exchange:
    """With the first token on its way to the client already, so that the next deltas are written at once."""
    (await engine.sequence()).say("Well")
    await until(lambda: exchange.writes)
    return exchange


@BOTH
async def test_the_headers_keep_proxies_from_holding_events_back(
    site: Served[FakeEngine], path: str, payload: dict[str, object]
) -> None:
    exchange = await opened(site.open(path, payload), site.engine)
    site.engine.sequences[0].end()
    await exchange
    assert exchange.status == 200
    assert exchange.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert exchange.headers["cache-control"] == "no-cache, no-transform"
    assert exchange.headers["x-accel-buffering"] == "no"
    assert exchange.headers["x-request-id"].startswith("req-")
    assert "content-length" not in exchange.headers


@BOTH
async def test_no_byte_leaves_before_the_first_token(
    site: Served[FakeEngine], path: str, payload: dict[str, object]
) -> None:
    exchange = site.open(path, payload)
    sequence = await site.engine.sequence()
    await turns()
    assert (exchange.status, exchange.writes) == (0, [])
    sequence.say("Paris")
    await until(lambda: exchange.writes)
    assert exchange.status == 200
    assert text_of(exchange.events) == "Paris"


@BOTH
async def test_each_delta_is_one_event_in_a_write_of_its_own(
    site: Served[FakeEngine], path: str, payload: dict[str, object]
) -> None:
    exchange = await opened(site.open(path, payload), site.engine)
    for text in (" a", " b", " two three four"):
        site.engine.sequences[0].say(text)
    assert [text_of(events(write)) for write in exchange.writes] == ["Well", " a", " b", " two three four"]
    assert [len(events(write)) for write in exchange.writes] == [1, 1, 1, 1]


@BOTH
async def test_the_last_text_its_finish_and_done_leave_in_one_write(
    site: Served[FakeEngine], path: str, payload: dict[str, object]
) -> None:
    exchange = await opened(site.open(path, payload), site.engine)
    site.engine.sequences[0].say(" done", finish=FinishReason.LENGTH)
    await exchange
    assert len(exchange.writes) == 2
    last = events(exchange.writes[1])
    assert text_of(last) == " done"
    assert finish_reasons(last) == {0: "length"}
    assert [event == DONE for event in last] == [False, False, True]


@BOTH
async def test_a_stream_without_any_text_still_finishes(
    site: Served[FakeEngine], path: str, payload: dict[str, object]
) -> None:
    exchange = site.open(path, payload)
    (await site.engine.sequence()).end()
    await exchange
    assert exchange.status == 200
    assert text_of(exchange.events) == ""
    assert finish_reasons(exchange.events) == {0: "stop"}
    assert exchange.events[-1] == DONE


async def test_the_role_rides_in_the_first_event_of_each_choice_and_nowhere_else(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True, n=2))
    for index in (0, 1):
        sequence = await site.engine.sequence(index)
        sequence.say("one")
        sequence.say(" two")
    for sequence in site.engine.sequences:
        sequence.end()
    await exchange
    roles = {0: [], 1: []}  # type: dict[int, list[str | None]]
    for event in exchange.events[:-1]:
        roles[event["choices"][0]["index"]].append(event["choices"][0]["delta"].get("role"))
    assert roles == {0: ["assistant", None, None], 1: ["assistant", None, None]}


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
@BOTH
async def test_characters_that_some_clients_take_for_line_ends_are_escaped(
    site: Served[FakeEngine], path: str, payload: dict[str, object], separator: str
) -> None:
    text = f"é{separator}🙂"
    exchange = site.open(path, payload)
    (await site.engine.sequence()).say(text, finish=FinishReason.LENGTH)
    await exchange
    assert separator.encode() not in exchange.body
    assert f"\\u{ord(separator):04x}".encode() in exchange.body
    assert text_of(exchange.events) == text


@pytest.mark.parametrize(
    "text", ['"\\/\b\f\n\r\t', "\x00\x01\x1f\x7f", "\n\ndata: [DONE]\n\n", "\ufeff\ufffd\U0010ffff"]
)
async def test_whatever_the_text_is_it_stays_inside_its_event(site: Served[FakeEngine], text: str) -> None:
    exchange = site.open(CHAT, chat(stream=True))
    sequence = await site.engine.sequence()
    for token_id in site.engine.model.tokenizer.encode(text, add_special_tokens=False):
        sequence.push(token_id)
    sequence.end()
    await exchange
    assert text_of(exchange.events) == text
    assert exchange.events.count(DONE) == 1


async def test_a_choice_first_appears_after_the_one_before_it(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True, n=3))
    await site.engine.sequence(2)
    first, second, third = site.engine.sequences
    third.say("c")
    third.end()
    second.say("b")
    await turns()
    assert exchange.status == 0
    first.say("a")
    await until(lambda: exchange.writes)
    assert [event["choices"][0]["index"] for event in exchange.events] == [0, 1, 2, 2]
    second.end()
    first.end()
    await exchange
    assert [text_of(exchange.events, index) for index in range(3)] == ["a", "b", "c"]
    assert set(finish_reasons(exchange.events)) == {0, 1, 2}
    assert exchange.events[-1] == DONE


async def test_a_choice_that_ends_without_text_lets_the_next_one_appear(site: Served[FakeEngine]) -> None:
    exchange = site.open(COMPLETIONS, completion(stream=True, n=2))
    await site.engine.sequence(1)
    first, second = site.engine.sequences
    second.say("b")
    second.end()
    first.end()
    await exchange
    assert [event["choices"][0]["index"] for event in exchange.events[:-1]] == [0, 1, 1]


async def test_usage_comes_once_after_the_last_choice_and_is_null_before(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True, n=2, stream_options={"include_usage": True}))
    await site.engine.sequence(1)
    for sequence in site.engine.sequences:
        sequence.say("one two")
        sequence.end()
    await exchange
    *chunks, last, done = exchange.events
    assert done == DONE
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2 * 3
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 6


async def test_every_chunk_of_a_stream_has_the_same_id_time_and_model(site: Served[FakeEngine]) -> None:
    exchange = await opened(site.open(CHAT, chat(stream=True)), site.engine)
    site.engine.sequences[0].end()
    await exchange
    heads = {json.dumps([event[key] for key in ("id", "created", "model", "object")]) for event in exchange.events[:-1]}
    assert len(heads) == 1
    assert exchange.headers["x-request-id"].removeprefix("req-") in heads.pop()


@BOTH
async def test_a_server_without_our_connection_gets_the_same_bytes(
    site: Served[FakeEngine], path: str, payload: dict[str, object]
) -> None:
    exchange = site.open(path, payload, plain=True)
    sequence = await site.engine.sequence()
    for text in ("a", " b", " c"):
        sequence.say(text)
        await turns()
    sequence.end()
    await exchange
    assert text_of(exchange.events) == "a b c"
    assert exchange.complete and exchange.events[-1] == DONE
