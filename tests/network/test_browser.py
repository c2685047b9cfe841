"""A web page reads streams: a real browser, from another origin, through nginx with its defaults."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from server.engine.protocol import Engine
from tests.network.chromium import Chromium, Tab, chromium, needs_chromium
from tests.network.nginx import needs_nginx, nginx
from tests.network.pages import page_server
from tests.server.conftest import MakeScripted
from tests.support import sse
from tests.support.engines import FakeEngine
from tests.support.live import Live, listening
from tests.support.site import CHAT, chat
from tests.support.waiting import until

pytestmark = [needs_nginx, needs_chromium]

E = TypeVar("E", bound=Engine)

FETCH = """
(async () => {
    try {
        const answer = await fetch(%(url)s, {
            method: 'POST',
            headers: {
                'Content-Type': 'application/json', 'Authorization': 'Bearer none', 'X-Stainless-Retry-Count': '0',
            },
            body: JSON.stringify(%(body)s),
        });
        report({status: answer.status, id: answer.headers.get('x-request-id')});
        const reader = answer.body.getReader(), decoder = new TextDecoder();
        for (;;) {
            const {done, value} = await reader.read();
            if (done) break;
            report({text: decoder.decode(value, {stream: true})});
        }
        report({done: true});
    } catch (error) {
        report({failed: String(error)});
    }
})()
"""


@dataclass
class World(Generic[E]):
    """A server behind nginx, open to pages of `page`, and a browser. `stranger` is the same page by another name."""

    live: Live[E]
    proxy_port: int
    page: str
    stranger: str
    browser: Chromium

    async def fetch(self, tab: Tab, payload: dict[str, Any], path: str = CHAT) -> None:
        await tab.run(
            FETCH % {"url": json.dumps(f"http://127.0.0.1:{self.proxy_port}{path}"), "body": json.dumps(payload)}
        )


@asynccontextmanager
async def world(engine: E, folder: Path) -> AsyncIterator[World[E]]:
    async with AsyncExitStack() as stack:
        page_port = await stack.enter_async_context(page_server())
        page = f"http://127.0.0.1:{page_port}"
        live = await stack.enter_async_context(listening(engine, f"http.cors_origins=['{page}']"))
        proxy = await stack.enter_async_context(nginx(live.port, folder))
        browser = await stack.enter_async_context(chromium(folder))
        yield World(live, proxy.port, page, f"http://localhost:{page_port}", browser)


async def test_a_page_reads_each_token_before_the_next_is_generated(engine: FakeEngine, tmp_path: Path) -> None:
    async with world(engine, tmp_path) as here:
        tab = await here.browser.open(here.page)
        await here.fetch(tab, chat(stream=True))
        sequence = await engine.sequence()
        body = ""
        for number, word in enumerate(("one", " two", " three", " 🙂")):
            sequence.say(word)
            if number == 0:
                answer = await tab.heard()
                assert answer["status"] == 200
                assert answer["id"].startswith("req-")
            while not body.endswith("\n\n") or word not in sse.text_of(sse.events(body.encode())):
                body += (await tab.heard())["text"]
        sequence.end()
        while "text" in (report := await tab.heard()):
            body += report["text"]
        assert report == {"done": True}
        found = sse.events(body.encode())
        assert sse.text_of(found) == "one two three 🙂"
        assert found[-1] == sse.DONE


async def test_a_closed_tab_costs_the_engine_no_further_token(scripted: MakeScripted, tmp_path: Path) -> None:
    engine = scripted(step_ms=20, max_model_len=8192)
    async with world(engine, tmp_path) as here:
        tab = await here.browser.open(here.page)
        await here.fetch(tab, chat(stream=True, max_tokens=8000, n=2))
        reports = [await tab.heard() for _ in range(6)]
        assert all("text" in report for report in reports[1:])
        assert engine.in_flight == 2
        await tab.close()
        await until(lambda: engine.in_flight == 0)
        (record,) = await here.live.records()  # once no permit is in use
        assert record["outcome"] == "client_gone"


async def test_a_page_of_an_origin_that_is_not_allowed_cannot_ask(engine: FakeEngine, tmp_path: Path) -> None:
    async with world(engine, tmp_path) as here:
        tab = await here.browser.open(here.stranger)
        await here.fetch(tab, chat(stream=True))
        assert "TypeError" in (await tab.heard())["failed"]
        assert engine.sequences == []


@pytest.mark.parametrize("allowed", [True, False])
async def test_only_a_page_of_an_allowed_origin_can_read_an_error(
    engine: FakeEngine, tmp_path: Path, allowed: bool
) -> None:
    async with world(engine, tmp_path) as here:
        tab = await here.browser.open(here.page if allowed else here.stranger)
        await here.fetch(tab, chat(max_tokens=0))
        report = await tab.heard()
        if allowed:
            assert report["status"] == 400
            error = json.loads((await tab.heard())["text"])["error"]
            assert error["param"] == "max_tokens"
        else:
            assert "TypeError" in report["failed"]
