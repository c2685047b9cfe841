"""A chat answer is the same however the engine's steps cut it, and the same streamed and whole."""

from typing import Any

import pytest

from server.engine.protocol import ModelInfo
from tests.conformance import normal
from tests.conformance.cases import CALLS, TEXT, THOUGHTS, Case
from tests.conformance.normal import Normal
from tests.conformance.replay import END_OF_SEQUENCE, Partition, ReplayEngine, partitions
from tests.support.site import CHAT, Served, chat, serving

QUIET = ("telemetry.log_level=error",)


async def answers(site: Served[ReplayEngine], case: Case, partition: Partition) -> tuple[Normal, Normal]:
    """Streamed, and whole."""
    site.engine.partition, site.engine.finish = partition, case.ends
    asks = chat(**case.asks)
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = await site.post(CHAT, asks | options)
    whole = await site.post(CHAT, asks)
    assert (streamed.status, whole.status) == (200, 200), whole.body
    return normal.of_chat_stream(streamed.events), normal.of_chat_body(whole.json)


def ids_of(model: ModelInfo, case: Case) -> list[int]:
    ids = model.tokenizer.encode(case.says, add_special_tokens=False)
    return [*ids, END_OF_SEQUENCE] if case.finish != "length" else ids


@pytest.mark.parametrize("case", [*TEXT, *CALLS, *THOUGHTS], ids=lambda case: case.name)
async def test_an_answer_is_the_same_however_it_is_cut(model: ModelInfo, case: Case) -> None:
    engine = ReplayEngine(model)
    ids = ids_of(model, case)
    async with serving(engine, *QUIET, *case.settings) as site:
        for number, partition in enumerate(partitions(ids, seed=len(ids))):
            streamed, whole = await answers(site, case, partition)
            if number == 0:
                expected = whole
                check(expected, model, case)
            assert whole == expected, partition
            assert streamed == expected, partition


def check(found: Normal, model: ModelInfo, case: Case) -> None:
    """That it is the right answer, not only always the same one."""
    for said in found.choices.values():
        assert (said.content, said.reasoning, said.finish) == (case.content, case.reasoning, case.finish)
        assert tuple(map(tuple, said.calls)) == case.calls
        if case.asks.get("logprobs"):
            spelt = b"".join(bytes(entry["bytes"]) for entry in said.logprobs)
            assert spelt.startswith((case.content or "").encode()) or case.reasoning
            assert all(len(entry["top_logprobs"]) == case.asks.get("top_logprobs", 0) for entry in said.logprobs)
        if case.asks.get("return_token_ids") and "stop" not in case.asks:
            assert said.token_ids == ids_of(model, case)
    assert found.usage is not None
    assert len(found.choices) == case.asks.get("n", 1)
