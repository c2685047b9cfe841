"""What is counted is what clients saw."""

import gc
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from server.errors import EngineFailed
from tests.support.engines import FakeEngine
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion
from tests.support.waiting import until

Samples = dict[tuple[str, tuple[str, ...]], float]


async def scrape(site: Served[FakeEngine]) -> Samples:
    text = (await site.get("/metrics")).body.decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("streamgauge")
    }


async def test_counters_equal_the_clients_tally_and_gauges_return_to_zero(site: Served[FakeEngine]) -> None:
    outcomes: Counter[tuple[str, str]] = Counter()
    prompt_tokens = output_tokens = events = 0
    for number in range(12):
        path, endpoint = (CHAT, "chat") if number % 2 else (COMPLETIONS, "completions")
        payload = chat if number % 2 else completion
        begun = len(site.engine.sequences)
        match number % 4:
            case 0 | 1:
                exchange = site.open(path, payload(n=2))
            case 2 | 3:
                exchange = site.open(path, payload(stream=True, n=2, stream_options={"include_usage": True}))
        await site.engine.sequence(begun + 1)
        for sequence in site.engine.sequences[begun:]:
            sequence.say("one")
            sequence.say(" two three")
            sequence.end()
        await exchange
        usage = exchange.events[-2]["usage"] if number % 4 > 1 else exchange.json["usage"]
        prompt_tokens += usage["prompt_tokens"]
        output_tokens += usage["completion_tokens"]
        events += 4
        outcomes[endpoint, "ok"] += 1

    for fields in ({"temperature": -1}, {"model": "other"}):
        outcomes["chat", (await site.post(CHAT, chat(**fields))).error["code"]] += 1

    site.engine.refusal = EngineFailed()
    outcomes["chat", (await site.post(CHAT, chat())).error["code"]] += 1
    site.engine.refusal = None

    begun = len(site.engine.sequences)
    gone = site.open(CHAT, chat(stream=True))
    await site.engine.sequence(begun)
    assert (await scrape(site))["streamgauge_requests_in_flight", ()] == 1
    gone.disconnect()
    await gone
    outcomes["chat", "client_gone"] += 1

    await until(lambda: site.idle)
    samples = await scrape(site)
    counted = {key: value for (name, key), value in samples.items() if name == "streamgauge_requests_total"}
    assert counted == outcomes
    assert samples["streamgauge_tokens_total", ("output",)] == output_tokens
    assert samples["streamgauge_tokens_total", ("prompt",)] == prompt_tokens
    assert samples["streamgauge_requests_in_flight", ()] == 0
    assert samples["streamgauge_request_seconds_count", ()] == outcomes.total()
    assert samples["streamgauge_unattributed_seconds_count", ()] == outcomes.total()
    assert samples["streamgauge_time_to_first_token_seconds_count", ()] == 12
    assert samples["streamgauge_time_per_output_token_seconds_count", ()] == 2 * 12
    assert samples["streamgauge_event_gap_seconds_count", ()] == events - 2 * 12
    assert samples["streamgauge_stage_seconds_count", ("prefill",)] == 12
    deltas = 3 * 2 * 12
    assert samples["streamgauge_token_stage_seconds_count", ("detokenize",)] == deltas
    assert samples["streamgauge_token_stage_seconds_count", ("send",)] == deltas
    assert samples["streamgauge_token_stage_seconds_count", ("decode",)] == deltas - 12


async def test_a_request_that_never_entered_the_engine_brought_it_no_prompt(site: Served[FakeEngine]) -> None:
    site.services.admission.close()
    assert (await site.post(CHAT, chat())).status == 503
    assert (await scrape(site))["streamgauge_tokens_total", ("prompt",)] == 0


async def test_every_histogram_of_times_starts_at_50_microseconds(site: Served[FakeEngine]) -> None:
    text = (await site.get("/metrics")).body.decode()
    histograms = [
        family
        for family in text_string_to_metric_families(text)
        if family.type == "histogram" and family.name.startswith("streamgauge") and family.name.endswith("_seconds")
    ]
    assert len(histograms) >= 9
    for family in histograms:
        bounds = {float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")}
        assert min(bounds) == 50e-6


async def test_loop_lag_and_collector_pauses_are_watched(site: Served[FakeEngine]) -> None:
    gc.collect()
    await until(lambda: site.services.metrics.loop_lag.count)
    samples = await scrape(site)
    assert samples["streamgauge_event_loop_lag_seconds_count", ()] > 0
    assert samples["streamgauge_gc_pause_seconds_count", ()] > 0
