"""The ledger on the real engine: what the server measured is what its client waited, and the stamps are in order."""

import asyncio
from itertools import pairwise
from typing import Any

import httpx
import orjson
import pytest

from bench.sample import RequestSample
from sampling.params import SamplingParams
from server.stages import LEDGER_STAGES
from tests.integration.http import CHAT, COMPLETIONS, answer, chat, completion, post
from tests.integration.live import LiveServer, Sequence, generate, until

TOKENS = 32


async def measured(live: LiveServer, path: str, body: dict[str, Any]) -> tuple[RequestSample, dict[str, Any]]:
    """One request as its client saw it, and as /debug/requests has it."""
    sample = await post(live, path, {"max_tokens": TOKENS, "ignore_eos": True, **body})
    assert sample.ok, sample.detail
    await until(live.idle, "the request has ended")
    async with httpx.AsyncClient(base_url=live.base_url) as client:
        (record,) = (await client.get("/debug/requests", params={"limit": 1})).json()["requests"]
    return sample, record


@pytest.mark.parametrize(
    "path, body",
    [
        (CHAT, chat(stream=True)),
        (CHAT, chat()),
        (COMPLETIONS, completion(stream=True)),
        (COMPLETIONS, completion()),
        (CHAT, chat(stream=True, n=3, temperature=1)),
    ],
    ids=["chat streamed", "chat", "completion streamed", "completion", "three choices"],
)
async def test_the_ledger_equals_the_clients_clock_and_adds_up(live: LiveServer, path: str, body: Any) -> None:
    sample, record = await measured(live, path, body)
    assert sample.e2e_ns is not None
    client_ms = sample.e2e_ns / 1e6
    slack = 5 + 0.05 * client_ms
    assert record["wall_ms"] == pytest.approx(client_ms, abs=slack)

    stages = record["stages_ms"]
    assert list(stages) == [stage.label for stage in LEDGER_STAGES]
    assert all(ms >= 0 for ms in stages.values())
    assert sum(stages.values()) + record["unattributed_ms"] == pytest.approx(record["wall_ms"], abs=0.01)
    assert 0 <= record["unattributed_ms"] < slack
    for name in ("queue", "prefill", "decode", "transfer", "encode", "send"):
        assert stages[name] > 0, name
    assert stages["decode"] > 0.5 * record["wall_ms"], "most of the time is the engine's"

    assert record["outcome"] == "ok"
    assert record["status"] == 200
    assert record["output_tokens"] == TOKENS * record["choices"]
    assert record["streamed"] is bool(body.get("stream"))
    if record["streamed"]:
        assert sample.ttft_ns is not None
        assert record["ttft_ms"] == pytest.approx(sample.ttft_ns / 1e6, abs=slack)
        assert record["events"] == sample.generated_events


async def test_timings_reach_the_caller_who_asks(live: LiveServer) -> None:
    sample, record = await measured(live, CHAT, chat(include_timings=True))
    timings = answer(sample)["timings"]
    assert timings["wall_ms"] <= record["wall_ms"]
    for name, ms in timings["stages_ms"].items():
        if name not in ("encode", "send"):
            assert ms == pytest.approx(record["stages_ms"][name], abs=0.01)

    async with httpx.AsyncClient(base_url=live.base_url, timeout=100) as client:
        plain = await client.post(CHAT, json=chat(max_tokens=2))
        timed = await client.post(CHAT, json=chat(max_tokens=2, include_timings=True))
        stream = await client.post(CHAT, json=chat(max_tokens=2, stream=True, include_timings=True))
    assert "timings" not in plain.json()
    assert "Server-Timing" not in plain.headers
    assert "prefill;dur=" in timed.headers["Server-Timing"]
    events = [orjson.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: {")]
    assert [event["choices"][0]["finish_reason"] for event in events if "timings" in event] == ["length"]


def test_the_stamps_of_a_sequence_are_in_order(live: LiveServer) -> None:
    async def several() -> list[Sequence]:
        params = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True)
        return await asyncio.gather(*(generate(live.engine, f"stamps-{k}", [7 + k] * 20, params) for k in range(4)))

    for sequence in live.run(several()):
        assert sum(len(delta.token_ids) for delta in sequence.deltas) == TOKENS
        for delta in sequence.deltas:
            assert delta.scheduled_ns <= delta.sampled_ns <= delta.received_ns
        assert sequence.deltas[0].scheduled_ns > 0
        for earlier, later in pairwise(sequence.deltas):
            assert earlier.sampled_ns < later.sampled_ns
            assert earlier.received_ns < later.received_ns


async def test_metrics_hold_our_series_and_vllms(live: LiveServer) -> None:
    before = live.services.metrics.stages[0].count
    await measured(live, CHAT, chat(stream=True))
    async with httpx.AsyncClient(base_url=live.base_url) as client:
        text = (await client.get("/metrics")).text
    for series in (
        'streamgauge_stage_seconds_count{stage="prefill"}',
        'streamgauge_token_stage_seconds_count{stage="decode"}',
        "streamgauge_unattributed_seconds_count",
        "streamgauge_time_to_first_token_seconds_bucket",
        "streamgauge_time_per_output_token_seconds_sum",
        "streamgauge_event_gap_seconds_count",
        "streamgauge_request_seconds_count",
        'streamgauge_requests_total{endpoint="chat",outcome="ok"}',
        'streamgauge_tokens_total{kind="output"}',
        "streamgauge_requests_in_flight 0.0",
        "streamgauge_event_loop_lag_seconds_count",
        "streamgauge_gc_pause_seconds_count",
        "streamgauge_step_failures_total",
        "vllm:num_requests_running{",
        "vllm:kv_cache_usage_perc{",
        "vllm:time_to_first_token_seconds_count{",
        "vllm:generation_tokens_total{",
    ):
        assert f"\n{series}" in text, series
    assert live.services.metrics.stages[0].count >= before


async def test_no_prompt_text_is_kept(live: LiveServer) -> None:
    secret = "xylophone-4711"
    await measured(live, CHAT, chat(f"Repeat: {secret}", stream=True))
    async with httpx.AsyncClient(base_url=live.base_url) as client:
        kept = (await client.get("/debug/requests", params={"limit": 1000})).text
        text = (await client.get("/metrics")).text
    assert secret not in kept
    assert secret not in text
