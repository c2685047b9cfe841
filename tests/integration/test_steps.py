"""The step probe on the real engine: a step's parts add up, and requests know what sampling took."""

import asyncio
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from sampling.probe.records import PARTS
from tests.integration.http import CHAT, answer, chat, post
from tests.integration.live import LiveServer, until

TOKENS = 24
WORK = ("schedule", "prepare", "forward", "sample", "finalize", "update")


async def scraped(live: LiveServer) -> dict[tuple[str, str], float]:
    async with httpx.AsyncClient(base_url=live.base_url) as client:
        text = (await client.get("/metrics")).text
    return {
        (sample.name.removeprefix("streamgauge_"), next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("streamgauge_engine_", "streamgauge_batch_"))
    }


def seconds(before: dict[tuple[str, str], float], after: dict[tuple[str, str], float]) -> dict[str, float]:
    """What each part took between two scrapes."""
    name = "engine_step_seconds_sum"
    return {part: after[name, part] - before[name, part] for part in PARTS}


async def load(live: LiveServer, streams: int) -> None:
    body = chat(stream=True, max_tokens=TOKENS, ignore_eos=True)
    for sample in await asyncio.gather(*(post(live, CHAT, body) for _ in range(streams))):
        assert sample.ok, sample.detail


async def test_a_request_is_told_what_sampling_took_in_its_prefill_and_decode(live: LiveServer) -> None:
    body: dict[str, Any] = chat(max_tokens=TOKENS, ignore_eos=True, include_timings=True, temperature=1)
    timings = answer(await post(live, CHAT, body))["timings"]
    stages, inside = timings["stages_ms"], timings["substages_ms"]
    assert 0 < inside["prefill"]["sample"] < stages["prefill"]
    # What our own work hides of a step is not waited for, so `decode` is no strict bound.
    assert 0 < inside["decode"]["sample"] < timings["wall_ms"]


async def test_every_part_of_a_step_is_seen_and_the_model_takes_most_of_it(live: LiveServer) -> None:
    await until(live.idle, "nothing runs")
    before = await scraped(live)
    await load(live, 8)
    after = await scraped(live)
    parts = seconds(before, after)
    for part in WORK:
        assert parts[part] > 0, part
    work = sum(parts[part] for part in WORK)
    assert parts["forward"] > 0.5 * work
    steps = after["engine_step_seconds_count", "forward"] - before["engine_step_seconds_count", "forward"]
    assert TOKENS <= steps <= 8 * (TOKENS + 1)
    decoded = after["batch_tokens_sum", "decode"] - before["batch_tokens_sum", "decode"]
    assert decoded == 8 * (TOKENS - 1)  # a sequence's first token comes of its prefill
    assert after["batch_tokens_sum", "prefill"] > before["batch_tokens_sum", "prefill"]


async def test_parts_and_gap_fill_the_wall_time_of_a_busy_engine(live: LiveServer) -> None:
    await load(live, 2)  # ends the idle time before
    before = await scraped(live)
    started = asyncio.get_running_loop().time()
    await load(live, 16)
    wall = asyncio.get_running_loop().time() - started
    parts = seconds(before, await scraped(live))
    total = sum(parts.values())
    # From the end of the last step before to the end of the last one: what both scrapes took lies in it, as idle.
    assert total - parts["idle"] <= wall * 1.02 + 0.05
    assert total >= wall * 0.7 - 0.05  # less what the client still reads after the last step
    assert parts["overhead"] < 0.2 * wall
