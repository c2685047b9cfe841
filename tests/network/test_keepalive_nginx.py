"""A long prefill behind a proxy that ends silent answers: keep-alives carry it through, and only silence has them."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from server.request import FinishReason
from server.streaming.outbox import KEEP_ALIVE
from tests.network.nginx import needs_nginx, nginx
from tests.server.conftest import MakeScripted
from tests.support import sse
from tests.support.engines import FakeEngine
from tests.support.golden import normalised
from tests.support.live import listening
from tests.support.site import CHAT, COMPLETIONS, MODEL, chat, completion
from tests.support.waiting import until

pytestmark = needs_nginx

PROMPT = [504] * 500  # the scripted engine's first step takes as long as its tokens, the others a 500th of that
IMPATIENT = "proxy_read_timeout 2s;"  # instead of 60
PREFILL_S = 5
KEEP_ALIVE_S = 0.4


def slow_prefill(scripted: MakeScripted, seconds: float) -> Any:
    return scripted(token_us=seconds * 1e6 / len(PROMPT))


def question(**fields: Any) -> dict[str, Any]:
    return completion(prompt=PROMPT, max_tokens=5, stream=True, **fields)


def answered(body: bytes) -> None:
    """Whole, after a silence that keep-alives filled."""
    assert body.startswith(KEEP_ALIVE)
    found = sse.events(body)
    assert sse.finish_reasons(found) == {0: "length"}
    assert found[-1] == sse.DONE


async def test_a_prefill_longer_than_the_proxys_patience_survives(scripted: MakeScripted, tmp_path: Path) -> None:
    async with (
        listening(slow_prefill(scripted, PREFILL_S), f"http.keepalive={KEEP_ALIVE_S}") as live,
        nginx(live.port, tmp_path, IMPATIENT) as proxy,
        proxy.client() as client,
    ):
        client.post(COMPLETIONS, question())
        assert await client.head() == 200
        answered(await client.body())
        assert "timed out" not in proxy.errors


async def test_without_keep_alives_the_proxy_ends_the_same_request(scripted: MakeScripted, tmp_path: Path) -> None:
    async with (
        listening(slow_prefill(scripted, PREFILL_S), "http.keepalive=0") as live,
        nginx(live.port, tmp_path, IMPATIENT) as proxy,
        proxy.client() as client,
    ):
        client.post(COMPLETIONS, question())
        assert await client.head() == 504
        assert "timed out" in proxy.errors


@pytest.mark.parametrize(("keepalive", "survives"), [(KEEP_ALIVE_S, True), (0, False)])
async def test_a_silence_between_two_tokens_survives_only_with_keep_alives(
    engine: FakeEngine, tmp_path: Path, keepalive: float, survives: bool
) -> None:
    async with (
        listening(engine, f"http.keepalive={keepalive}") as live,
        nginx(live.port, tmp_path, IMPATIENT) as proxy,
        proxy.client() as client,
    ):
        client.post(CHAT, chat(stream=True))
        sequence = await engine.sequence()
        sequence.say("before")
        assert await client.head() == 200
        assert sse.text_of(sse.events(await client.chunk())) == "before"
        if survives:
            await asyncio.sleep(PREFILL_S)
            sequence.say("after", FinishReason.STOP)
            assert sse.text_of(await client.events()) == "after"
        else:
            assert await client.closed() == b""
            await until(lambda: sequence.aborted)


async def test_no_keep_alive_comes_while_tokens_flow(scripted: MakeScripted, tmp_path: Path) -> None:
    async with (
        listening(scripted(step_ms=20), "http.keepalive=1") as live,  # tokens for three seconds
        nginx(live.port, tmp_path) as proxy,
        live.client() as direct,
        proxy.client() as proxied,
    ):
        bodies = []
        for client in (direct, proxied):
            client.post(CHAT, chat(stream=True, max_tokens=150, stream_options={"include_usage": True}))
        for client in (direct, proxied):
            assert await client.head() == 200
            bodies.append(normalised(await client.body()))
        assert bodies[0] == bodies[1]
        assert b"\n\n\n" not in bodies[0]
        assert not bodies[0].startswith(b"\n")


async def test_the_openai_package_reads_an_answer_that_keep_alives_precede(
    scripted: MakeScripted, tmp_path: Path
) -> None:
    async with (
        listening(slow_prefill(scripted, PREFILL_S), f"http.keepalive={KEEP_ALIVE_S}") as live,
        nginx(live.port, tmp_path, IMPATIENT) as proxy,
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="none", max_retries=0) as client,
    ):
        stream = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=5, stream=True)
        chunks = [chunk async for chunk in stream]
        assert len("".join(chunk.choices[0].text for chunk in chunks)) > 5
        assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.long
async def test_a_prefill_of_70_seconds_survives_an_nginx_that_nobody_tuned(
    scripted: MakeScripted, tmp_path: Path
) -> None:
    async with (
        listening(slow_prefill(scripted, 70)) as live,
        nginx(live.port, tmp_path) as proxy,
        proxy.client() as client,
    ):
        client.post(COMPLETIONS, question())
        assert await client.head() == 200
        body = await client.body()
        answered(body)
        assert len(body) - len(body.lstrip(b"\n")) == 4  # with the headers after 15 s, then every 15 s
