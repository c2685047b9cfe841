"""A page follows a response in the background with EventSource: cuts are made good, and its end is an end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.network.chromium import Tab, needs_chromium
from tests.network.nginx import needs_nginx
from tests.network.pages import wire
from tests.network.test_browser import World, world
from tests.support.engines import FakeEngine
from tests.support.site import MODEL
from tests.support.waiting import until

pytestmark = [needs_nginx, needs_chromium]

RESPONSES = "/v1/responses"
DELTA = "response.output_text.delta"
CONNECTING, CLOSED = 0, 2  # EventSource.readyState

# An event with a name does not reach `onmessage`, so every name is listened for.
FOLLOW = """
globalThis.source = new EventSource(%(url)s);
const seen = event => report({id: event.lastEventId, data: JSON.parse(event.data)});
const names = ['created', 'queued', 'in_progress', 'output_item.added', 'content_part.added', 'output_text.delta',
    'output_text.done', 'content_part.done', 'output_item.done', 'completed', 'incomplete', 'failed'];
source.onmessage = seen;
for (const name of names) source.addEventListener('response.' + name, seen);
source.onerror = () => report({state: source.readyState});
"""


class Follower:
    """A page that follows one response: `events` as it got them, and how often it lost the connection."""

    def __init__(self, tab: Tab) -> None:
        self.events: list[dict[str, Any]] = []
        self.losses = 0
        self._tab = tab

    async def follow(self, url: str) -> None:
        await self._tab.run(FOLLOW % {"url": json.dumps(url)})

    async def read(self, text: str) -> None:
        """Until `text` has arrived in all."""
        while self.text != text:
            assert text.startswith(self.text)
            await self._next()

    async def lose(self) -> None:
        """Until it has noticed that its connection is gone."""
        losses = self.losses
        while self.losses == losses:
            assert await self._next() != CLOSED

    async def finish(self) -> None:
        """Until it has stopped asking."""
        while await self._next() != CLOSED:
            pass

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == DELTA)

    async def _next(self) -> int | None:
        report = await self._tab.heard()
        if "state" in report:
            state: int = report["state"]
            self.losses += state == CONNECTING
            return state
        event = report["data"]
        assert report["id"] == str(event["sequence_number"])
        assert event["sequence_number"] == len(self.events)  # none twice, none left out
        self.events.append(event)
        return None


async def start(here: World[FakeEngine], *, stream: bool) -> str:
    """The id of a response that is generated in the background."""
    payload = {"model": MODEL, "input": "Hi", "background": True, "stream": stream, "store": True}
    async with here.live.client() as client:
        client.post(RESPONSES, payload)
        assert await client.head() == 200
        if not stream:
            created = json.loads(await client.body())
        else:  # its first event names it; then the client goes away
            lines = (await client.chunk()).decode().split("\n")
            created = json.loads(next(line for line in lines if line.startswith("data: "))[6:])["response"]
    found: str = created["id"]
    return found


def address(port: int, response: str) -> str:
    return f"http://127.0.0.1:{port}{RESPONSES}/{response}?stream=true"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "polled"])
async def test_a_cut_connection_is_taken_up_where_it_broke(engine: FakeEngine, tmp_path: Path, stream: bool) -> None:
    async with world(engine, tmp_path) as here, wire(here.proxy_port) as line:
        response = await start(here, stream=stream)
        sequence = await engine.sequence()
        page = Follower(await here.browser.open(here.page))
        await page.follow(address(line.port, response))
        sequence.say("before")
        await page.read("before")
        line.cut()
        await page.lose()
        sequence.say(" while away")
        await page.read("before while away")
        sequence.say(" after")
        await page.read("before while away after")
        sequence.end()
        await page.finish()
        assert page.events[-1]["type"] == "response.completed"
        assert page.losses == 2  # the cut, and the end of the last answer
        await until(lambda: here.live.idle)


async def test_an_event_cut_in_two_is_sent_again_whole(engine: FakeEngine, tmp_path: Path) -> None:
    async with world(engine, tmp_path) as here, wire(here.proxy_port) as line:
        response = await start(here, stream=False)
        sequence = await engine.sequence()
        words = [f" {number}" for number in range(40)]
        for word in words:
            sequence.say(word)
        sequence.end()
        page = Follower(await here.browser.open(here.page))
        line.allow(4000)  # bytes of head and events
        await page.follow(address(line.port, response))
        await page.finish()
        assert line.cuts == 1
        assert page.text == "".join(words)
        assert page.events[-1]["type"] == "response.completed"


async def test_a_page_that_leaves_does_not_end_what_runs_in_the_background(engine: FakeEngine, tmp_path: Path) -> None:
    async with world(engine, tmp_path) as here:
        response = await start(here, stream=False)
        sequence = await engine.sequence()
        first = await here.browser.open(here.page)
        page = Follower(first)
        await page.follow(address(here.proxy_port, response))
        sequence.say("one")
        await page.read("one")
        await first.close()
        page = Follower(await here.browser.open(here.page))
        await page.follow(address(here.proxy_port, response))
        sequence.say(" two")
        await page.read("one two")
        assert not sequence.aborted
        sequence.end()
        await page.finish()


async def test_what_is_not_there_is_not_asked_for_again(engine: FakeEngine, tmp_path: Path) -> None:
    async with world(engine, tmp_path) as here:
        page = Follower(await here.browser.open(here.page))
        await page.follow(address(here.proxy_port, "resp_nothing"))
        await page.finish()
        assert page.events == []
        assert page.losses == 0
