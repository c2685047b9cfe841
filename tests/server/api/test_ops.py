from importlib.metadata import version

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.engines import FakeEngine
from tests.support.site import CHAT, Served, chat, serving
from tests.support.waiting import until


async def test_live_answers_while_ready_and_health_do_not(engine: FakeEngine) -> None:
    engine.may_start.clear()
    async with serving(engine, ready=False) as site:
        assert (await site.get("/live")).status == 200
        for path in ("/ready", "/health"):
            answer = await site.get(path)
            assert (answer.status, answer.error["code"]) == (503, "model_not_ready")
        engine.may_start.set()
        await until(lambda: site.services.ready)
        assert [(await site.get(path)).status for path in ("/live", "/ready", "/health")] == [200, 200, 200]
        site.services.draining = True
        assert [(await site.get(path)).status for path in ("/live", "/ready", "/health")] == [200, 503, 503]


async def test_the_version_is_the_distributions(site: Served[FakeEngine]) -> None:
    assert (await site.get("/version")).json == {"version": version("streamgauge")}


async def test_load_counts_requests_under_way(site: Served[FakeEngine]) -> None:
    assert (await site.get("/load")).json == {"server_load": 0}
    exchanges = [site.open(CHAT, chat(stream=stream)) for stream in (True, False)]
    await site.engine.sequence(1)
    assert (await site.get("/load")).json == {"server_load": 2}
    for sequence in site.engine.sequences:
        sequence.end()
    for exchange in exchanges:
        await exchange
    assert (await site.get("/load")).json == {"server_load": 0}


async def test_metrics_are_valid_prometheus_text(site: Served[FakeEngine]) -> None:
    answer = await site.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    names = [family.name for family in text_string_to_metric_families(answer.body.decode())]
    assert len(names) == len(set(names))
    assert {
        "streamgauge_stage_seconds",
        "streamgauge_token_stage_seconds",
        "streamgauge_unattributed_seconds",
        "streamgauge_time_to_first_token_seconds",
        "streamgauge_time_per_output_token_seconds",
        "streamgauge_event_gap_seconds",
        "streamgauge_request_seconds",
        "streamgauge_requests",
        "streamgauge_tokens",
        "streamgauge_requests_in_flight",
        "streamgauge_event_loop_lag_seconds",
        "streamgauge_gc_pause_seconds",
    } <= set(names)


@pytest.mark.parametrize("limit", [1, 3, 10_000])
async def test_debug_requests_are_the_last_ones_newest_first(engine: FakeEngine, limit: int) -> None:
    async with serving(engine, "telemetry.records=4") as site:
        ids = []
        for number in range(6):
            exchange = site.open(CHAT, chat(messages=[{"role": "user", "content": "my secret"}]))
            (await engine.sequence(number)).say("a secret answer")
            engine.sequences[number].end()
            ids.append((await exchange).headers["x-request-id"])
        answer = await site.get(f"/debug/requests?limit={limit}")
        assert [record["id"] for record in answer.json["requests"]] == ids[::-1][: min(limit, 4)]
        assert b"secret" not in answer.body
