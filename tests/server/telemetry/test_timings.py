"""The ledger as callers see it: only when asked for, whole, and the same answer without it."""

import json
from typing import Any

import pytest

from server.stages import LEDGER_STAGES
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine
from tests.support.golden import normalised
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.waiting import turns

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])
BOTH = pytest.mark.parametrize(("path", "payload"), [(CHAT, chat), (COMPLETIONS, completion)], ids=["chat", "text"])
KEYS = [
    "stages_ms",
    "substages_ms",
    "wall_ms",
    "unattributed_ms",
    "ttft_ms",
    "tpot_ms",
    "max_gap_ms",
    "max_gap_stage",
    "output_tokens_per_s",
    "events",
]


async def answered(site: Served[FakeEngine], path: str, payload: dict[str, Any]) -> Exchange:
    exchange = site.open(path, payload)
    begun = len(site.engine.sequences)
    await site.engine.sequence(begun + payload.get("n", 1) - 1)
    for sequence in site.engine.sequences[begun:]:
        for text in ("Paris", " is", " large"):
            sequence.say(text)
            await turns()
        sequence.end()
    return await exchange


def timings_of(exchange: Exchange) -> list[dict[str, Any]]:
    found = (
        exchange.events[:-1] if exchange.headers["content-type"].startswith("text/event-stream") else [exchange.json]
    )
    return [chunk["timings"] for chunk in found if "timings" in chunk]


@BOTH
@pytest.mark.parametrize("asked", [{}, {"include_timings": False}])
@STREAMED
async def test_nothing_is_told_unless_asked_for(
    site: Served[FakeEngine], path: str, payload: Any, asked: dict[str, bool], stream: bool
) -> None:
    exchange = await answered(site, path, payload(stream=stream, **asked))
    assert b"timings" not in exchange.body
    assert "server-timing" not in exchange.headers


@BOTH
@STREAMED
async def test_timings_come_once_and_add_up(site: Served[FakeEngine], path: str, payload: Any, stream: bool) -> None:
    exchange = await answered(site, path, payload(stream=stream, include_timings=True, n=2))
    (timings,) = timings_of(exchange)
    assert list(timings) == KEYS
    assert list(timings["stages_ms"]) == [stage.label for stage in LEDGER_STAGES]
    assert sum(timings["stages_ms"].values()) + timings["unattributed_ms"] == pytest.approx(
        timings["wall_ms"], abs=0.01
    )
    assert 0 < timings["ttft_ms"] <= timings["wall_ms"]
    assert timings["tpot_ms"] > 0
    assert timings["output_tokens_per_s"] == pytest.approx(8 * 1000 / timings["wall_ms"], rel=0.01)
    assert timings["events"] == 6


async def test_sampling_shows_inside_prefill_and_decode(site: Served[FakeEngine]) -> None:
    exchange = site.open(CHAT, chat(stream=True, include_timings=True))
    sequence = await site.engine.sequence()
    for sample_ms in (4, 1, 2):
        sequence.push(*site.engine.model.tokenizer.encode(" is"), sample_ns=sample_ms * 10**6)
        await turns()
    sequence.end()
    (timings,) = timings_of(await exchange)
    assert timings["substages_ms"] == {"prefill": {"sample": 4.0}, "decode": {"sample": 3.0}}


async def test_in_a_stream_they_ride_on_the_chunk_with_the_last_finish_reason(site: Served[FakeEngine]) -> None:
    exchange = await answered(
        site, CHAT, chat(stream=True, include_timings=True, stream_options={"include_usage": True})
    )
    carriers = [chunk for chunk in exchange.events[:-1] if "timings" in chunk]
    assert [chunk["choices"][0]["finish_reason"] for chunk in carriers] == ["stop"]
    assert carriers[0]["timings"]["max_gap_stage"] in [stage.label for stage in LEDGER_STAGES]


async def test_in_a_body_gaps_are_null_and_a_header_says_the_same(site: Served[FakeEngine]) -> None:
    exchange = await answered(site, CHAT, chat(include_timings=True))
    timings = exchange.json["timings"]
    assert timings["max_gap_ms"] is None
    assert timings["max_gap_stage"] is None
    header = dict(part.split(";dur=") for part in exchange.headers["server-timing"].split(", "))
    assert float(header.pop("total")) == timings["wall_ms"]
    assert {name: float(ms) for name, ms in header.items()} == {n: ms for n, ms in timings["stages_ms"].items() if ms}


@STREAMED
async def test_the_record_has_the_whole_ledger(site: Served[FakeEngine], stream: bool) -> None:
    exchange = await answered(site, CHAT, chat(stream=stream, include_timings=True))
    (record,) = await site.records()
    (timings,) = timings_of(exchange)
    assert set(KEYS) < set(record)
    assert record["id"] == exchange.headers["x-request-id"]
    assert (record["status"], record["outcome"], record["streamed"]) == (200, "ok", stream)
    assert (record["finish_reasons"], record["choices"], record["output_tokens"]) == (["stop"], 1, 4)
    assert (record["max_gap_ms"] is None) == (not stream)
    assert record["wall_ms"] >= timings["wall_ms"]
    for stage in ("receive", "validate", "tokenize", "admit", "queue"):
        assert record["stages_ms"][stage] == timings["stages_ms"][stage]
    assert record["stages_ms"]["encode"] > 0
    assert record["stages_ms"]["send"] > 0


@STREAMED
async def test_with_the_ledger_off_the_bytes_are_the_same_and_no_stage_is_told(
    engine: FakeEngine, stream: bool
) -> None:
    async with serving(engine) as site:
        on = await answered(site, CHAT, chat(stream=stream))
    async with serving(engine, "telemetry.ledger=false") as site:
        off = await answered(site, CHAT, chat(stream=stream))
        assert [normalised(write) for write in off.writes] == [normalised(write) for write in on.writes]
        asked = await answered(site, CHAT, chat(stream=stream, include_timings=True))
        (timings,) = timings_of(asked)
        assert set(timings["stages_ms"].values()) == {0}
        assert timings["unattributed_ms"] == 0
        assert timings["ttft_ms"] > 0
        metrics = (await site.get("/metrics")).body.decode()
        for name in ("stage_seconds", "token_stage_seconds"):
            counts = [line for line in metrics.splitlines() if line.startswith(f"streamgauge_{name}_count")]
            assert counts and all(line.endswith(" 0.0") for line in counts)


@STREAMED
async def test_a_refused_request_has_a_ledger_too(site: Served[FakeEngine], stream: bool) -> None:
    exchange = await site.post(CHAT, chat(stream=stream, temperature=-1))
    (record,) = await site.records()
    assert record["id"] == exchange.headers["x-request-id"]
    assert (record["status"], record["outcome"], record["output_tokens"]) == (400, "invalid_value", 0)
    assert record["ttft_ms"] is None
    assert json.dumps(record)
