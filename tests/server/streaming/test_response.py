"""A reader may let no write wait for longer than it is given: neither the headers, nor the body, nor the end."""

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY
from starlette.types import Message

from server.errors import PositionEvicted
from server.streaming.event_log import EventLog
from server.streaming.replay import EventLogResponse
from tests.support.asgi import FakeConnection, scope_of
from tests.support.waiting import DEADLINE_S

EVENT = b"data: 1\n\n"


def cuts() -> float:
    return REGISTRY.get_sample_value("streamgauge_stream_cuts_total", {"reason": "send_timeout"}) or 0


def evicted(error: PositionEvicted) -> bytes:
    raise AssertionError


async def respond(stalls_at: Callable[[Message], bool]) -> tuple[list[Message], FakeConnection]:
    """What a reader got that takes nothing from the message on which it stalls."""
    log = EventLog(1000)
    log.put(EVENT)
    log.close()
    got: list[Message] = []
    connection = FakeConnection()

    async def send(message: Message) -> None:
        if stalls_at(message):
            await asyncio.Event().wait()
        got.append(message)

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    response = EventLogResponse(log, 0, numbered=False, evicted=evicted, send_timeout=0.05, keepalive=0)
    async with asyncio.timeout(DEADLINE_S):
        await response(scope_of("GET", "/") | {"extensions": {"streamgauge": connection}}, receive, send)
    assert not log.readers
    return got, connection


@pytest.mark.parametrize(
    ("stalls_at", "messages"),
    [
        (lambda message: message["type"] == "http.response.start", 0),
        (lambda message: message.get("body") == EVENT, 1),
        (lambda message: message.get("more_body") is False, 2),
    ],
    ids=["headers", "body", "end"],
)
async def test_a_reader_that_stalls_is_cut_off_and_counted(stalls_at: Callable[[Message], bool], messages: int) -> None:
    before = cuts()
    got, connection = await respond(stalls_at)
    assert connection.aborted
    assert len(got) == messages
    assert cuts() == before + 1


async def test_a_reader_that_takes_all_is_not() -> None:
    before = cuts()
    got, connection = await respond(lambda message: False)
    assert [message.get("body") for message in got] == [None, EVENT, b""]
    assert not connection.aborted
    assert cuts() == before
