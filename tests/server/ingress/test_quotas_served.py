"""Limits of a whole server: streams count like bodies, aborted ones for their part, and clients see what they hit."""

import time
from collections.abc import AsyncIterator

import openai
import pytest

from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.live import Live, listening
from tests.support.site import CHAT, MODEL, Served, chat, serving
from tests.support.waiting import until

LIMIT = 100_000
MAX_TOKENS = 50


@pytest.fixture(autouse=True)
def one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a minute's end counts begin to fade."""
    monkeypatch.setattr(time, "time", lambda: 1_800_000_020.0)


@pytest.fixture
async def limited(engine: FakeEngine) -> AsyncIterator[Served[FakeEngine]]:
    async with serving(engine, f"limits.tokens_per_minute={LIMIT}", "limits.concurrent_requests=2") as served:
        yield served


async def begun(site: Served[FakeEngine], **fields: object) -> Exchange:
    index = len(site.engine.sequences)
    exchange = site.open(CHAT, chat(max_tokens=MAX_TOKENS, **fields))
    await site.engine.sequence(index)
    return exchange


async def used(site: Served[FakeEngine]) -> int:
    """Tokens, once nothing is under way; the refused request that asks takes none."""
    await until(lambda: site.idle)
    answer = await site.post(CHAT, {})
    assert answer.status == 400
    return LIMIT - int(answer.headers["x-ratelimit-remaining-tokens"])


def prompt_tokens(site: Served[FakeEngine]) -> int:
    return len(site.engine.sequences[-1].request.prompt_token_ids)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_charged_what_it_used(limited: Served[FakeEngine], stream: bool) -> None:
    exchange = await begun(limited, stream=stream)
    limited.engine.sequences[-1].push(504, 3575, 282)
    limited.engine.sequences[-1].end()
    answer = await exchange
    reserved = LIMIT - int(answer.headers["x-ratelimit-remaining-tokens"])
    assert reserved == prompt_tokens(limited) + MAX_TOKENS
    assert await used(limited) == prompt_tokens(limited) + 4


async def test_an_aborted_stream_is_charged_what_was_made_of_it(limited: Served[FakeEngine]) -> None:
    exchange = await begun(limited, stream=True)
    limited.engine.sequences[-1].push(504, 3575)
    exchange.disconnect()
    await exchange
    assert await used(limited) == prompt_tokens(limited) + 2


async def test_a_slot_is_free_when_its_client_has_gone(limited: Served[FakeEngine]) -> None:
    streams = [await begun(limited, stream=True) for _ in range(2)]
    refused = await limited.post(CHAT, chat())
    assert (refused.status, refused.json["error"]["reason"]) == (429, "concurrent_requests")
    streams[0].disconnect()
    await streams[0]
    third = await begun(limited, stream=True)
    for exchange in (streams[1], third):
        exchange.disconnect()
        await exchange
    await until(lambda: limited.idle)


async def test_a_background_response_holds_no_slot_but_keeps_its_tokens(limited: Served[FakeEngine]) -> None:
    asked = {"model": MODEL, "input": "Hi", "background": True, "max_output_tokens": MAX_TOKENS}
    for number in range(3):
        assert (await limited.post("/v1/responses", asked)).status == 200
        await limited.engine.sequence(number)
    answer = await limited.post(CHAT, {})
    assert LIMIT - int(answer.headers["x-ratelimit-remaining-tokens"]) == 3 * (prompt_tokens(limited) + MAX_TOKENS)
    for sequence in limited.engine.sequences:
        sequence.end()
    assert await used(limited) == 3 * (prompt_tokens(limited) + 1)


@pytest.fixture
async def live(engine: FakeEngine) -> AsyncIterator[Live[FakeEngine]]:
    async with listening(engine, "limits.requests_per_minute=1", "limits.tokens_per_minute=100") as served:
        yield served


async def test_openais_client_sees_a_rate_limit_by_its_code_and_when_to_come_back(live: Live[FakeEngine]) -> None:
    url = f"http://127.0.0.1:{live.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        for reason in ("tokens", "requests"):
            with pytest.raises(openai.RateLimitError) as refusal:
                await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=MAX_TOKENS, n=3
                )
            assert refusal.value.code == "rate_limit_exceeded"
            assert isinstance(refusal.value.body, dict)
            assert refusal.value.body["reason"] == reason
            assert 1 <= int(refusal.value.response.headers["retry-after"]) <= 120
            assert refusal.value.response.headers["x-ratelimit-limit-tokens"] == "100"


async def test_openais_client_does_not_repeat_what_can_never_be_served(live: Live[FakeEngine]) -> None:
    url = f"http://127.0.0.1:{live.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=5) as client:
        with pytest.raises(openai.RateLimitError) as refusal:
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=MAX_TOKENS, n=3
            )
    # A second try would have met the limit of requests.
    assert isinstance(refusal.value.body, dict)
    assert refusal.value.body["reason"] == "tokens"
