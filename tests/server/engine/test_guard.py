import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from server.engine.guard import STEP_FAILURES, push
from server.errors import InternalError
from server.request import TokenDelta
from server.streaming.choice import Choice
from tests.server.conftest import MakeScripted
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.sse import DONE, text_of

FAILURES: list[type[BaseException]] = [RuntimeError, KeyboardInterrupt, SystemExit, asyncio.CancelledError, MemoryError]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_handler_that_raises_is_aborted_counted_and_told(failure: type[BaseException]) -> None:
    taken: list[TokenDelta] = []
    aborts: list[bool] = []

    def on_step(delta: TokenDelta) -> None:
        taken.append(delta)
        if delta.error is None:
            raise failure

    before = STEP_FAILURES._value.get()
    push(on_step, TokenDelta((1,)), lambda: aborts.append(True))
    assert STEP_FAILURES._value.get() == before + 1
    assert aborts == [True]
    assert isinstance(taken[-1].error, InternalError)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_handler_that_always_raises_reaches_nobody(failure: type[BaseException]) -> None:
    def on_step(_: TokenDelta) -> None:
        raise failure

    push(on_step, TokenDelta((1,)), lambda: None)


def test_a_handler_that_does_not_raise_is_left_alone() -> None:
    taken: list[TokenDelta] = []
    delta = TokenDelta((1,))
    push(taken.append, delta, pytest.fail)
    assert taken == [delta]


@pytest.mark.parametrize("failure", FAILURES)
async def test_of_32_streams_one_that_raises_at_every_step_ends_alone(
    scripted: MakeScripted, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    async def texts(site: Served[Any]) -> list[str]:
        exchanges = [site.open(CHAT, chat(stream=True, max_tokens=12)) for _ in range(32)]
        return [
            text_of((await exchange).events) if exchange.status == 200 else ""
            for exchange in exchanges
            if await exchange
        ]

    async with serving(scripted()) as site:
        (quiet,) = set(await texts(site))
        assert quiet

    detokenize: Callable[..., list[str]] = Choice.detokenize
    bad: list[Choice] = []

    def raising(choice: Choice, delta: TokenDelta) -> list[str]:
        if len(bad) == 0:
            bad.append(choice)
        if choice is bad[0]:
            raise failure
        return detokenize(choice, delta)

    monkeypatch.setattr(Choice, "detokenize", raising)
    engine = scripted()
    async with serving(engine) as site:
        assert sorted(await texts(site)) == ["", *[quiet] * 31]
        assert engine.in_flight == 0
        assert site.idle
        outcomes = [record["outcome"] for record in await site.records()]
        assert sorted(outcomes) == ["internal_error", *["ok"] * 31]


async def test_a_stream_that_fails_in_the_middle_ends_with_an_error_event(
    scripted: MakeScripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    detokenize: Callable[..., list[str]] = Choice.detokenize

    def raising(choice: Choice, delta: TokenDelta) -> list[str]:
        if choice.output_tokens == 3:
            raise RuntimeError("secret")
        return detokenize(choice, delta)

    monkeypatch.setattr(Choice, "detokenize", raising)
    async with serving(scripted(step_ms=2)) as site:
        exchange = await site.post(COMPLETIONS, completion(stream=True))
        *_, error, done = exchange.events
        assert (error["error"]["code"], done) == ("internal_error", DONE)
        assert b"secret" not in exchange.body
