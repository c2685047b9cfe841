"""Health means progress: an engine that does not step while requests run is not ready, whatever else answers."""

from time import monotonic_ns
from typing import Any

from server.engine.scripted_engine import ScriptedEngine
from tests.server.admission.asking import ask
from tests.server.conftest import MakeScripted
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, Served, chat, serving
from tests.support.waiting import until

STALLS = "engine.stall_s=0.1"


async def health(site: Served[Any]) -> dict[str, Any]:
    answer = await site.get("/health")
    assert answer.status == 200
    found: dict[str, Any] = answer.json
    return found


async def status(site: Served[Any], path: str = "/ready") -> int:
    return (await site.get(path)).status


async def stalled(site: Served[FakeEngine]) -> None:
    """Wait until the watchdog has noticed."""
    while await status(site) == 200:
        await until(lambda: (site.services.step_age or 0) > 0.1)


async def test_an_idle_server_has_no_step_to_wait_for(site: Served[FakeEngine]) -> None:
    assert await health(site) == {
        "status": "ready",
        "last_step_age_s": None,
        "running_sequences": 0,
        "queued_requests": 0,
    }


async def test_health_tells_what_runs_what_waits_and_how_long_ago_the_last_step_was(engine: FakeEngine) -> None:
    async with serving(engine, "admission.max_batch_size=2") as site:
        running, *waiting = [ask(site, chat(n=2)) for _ in range(3)]
        await engine.sequence(1)
        await until(lambda: len(site.services.admission.queue) == 2)
        told = await health(site)
        assert (told["running_sequences"], told["queued_requests"]) == (2, 2)
        engine.last_step_ns = monotonic_ns() - 7 * 10**9  # of an earlier time, before there was something to do
        assert 0 <= (await health(site))["last_step_age_s"] < 7
        for exchange in (running, *waiting):
            exchange.disconnect()
            await exchange
        await until(lambda: site.idle)


async def test_an_engine_that_does_not_step_while_requests_run_is_not_ready(engine: FakeEngine) -> None:
    async with serving(engine, STALLS) as site:
        exchange = ask(site, chat(stream=True))
        sequence = await engine.sequence()
        await stalled(site)
        for path in ("/ready", "/health"):
            answer = await site.get(path)
            assert (answer.status, answer.error["code"]) == (503, "engine_stalled")
            assert answer.error["last_step_age_s"] >= 0.1
        assert await status(site, "/live") == 200
        refused = await site.post(CHAT, chat())
        assert (refused.status, refused.error["code"]) == (503, "engine_stalled")
        sequence.end()
        assert (await exchange).status == 200  # what waited for it is not given up
        assert await status(site) == 200  # there is nothing to do any more


async def test_the_next_step_makes_it_ready_again(engine: FakeEngine) -> None:
    async with serving(engine, STALLS) as site:
        exchange = ask(site)
        sequence = await engine.sequence()
        await stalled(site)
        engine.last_step_ns = monotonic_ns() + 60 * 10**9  # steps go on
        assert await status(site) == 200
        engine.last_step_ns = 0
        assert await status(site) == 503
        sequence.end()
        assert (await exchange).status == 200


async def test_an_engine_that_was_idle_for_long_is_not_stalled_by_its_next_request(engine: FakeEngine) -> None:
    async with serving(engine, "engine.stall_s=30") as site:
        engine.last_step_ns = monotonic_ns() - 3600 * 10**9
        exchange = ask(site)
        sequence = await engine.sequence()
        assert (await health(site))["last_step_age_s"] < 30
        sequence.end()
        await exchange


async def test_an_engine_that_steps_is_ready_however_long_its_requests_take(scripted: MakeScripted) -> None:
    engine: ScriptedEngine = scripted(step_ms=1)
    async with serving(engine, "engine.stall_s=0.3") as site:
        exchange = ask(site, chat(max_tokens=5000, stream=True))
        await until(lambda: engine.steps > 400)
        assert (await health(site))["running_sequences"] == 1
        exchange.disconnect()
        await exchange
        await until(lambda: site.idle)
