"""Many streams in one batch: all complete, and one whose handler fails is nobody else's business."""

import asyncio

from prometheus_client import REGISTRY

from bench.bodies import chat_body
from sampling.params import SamplingParams
from server.errors import InternalError
from server.request import EngineRequest, TokenDelta
from tests.integration.http import CHAT, MODEL
from tests.integration.live import SLOTS, LiveServer, Sequence, all_ended, submit, until

WORDS = "river stone winter market signal garden engine letter harbour window copper meadow lantern forest".split()


async def test_32_concurrent_streams_of_128_tokens_all_complete(live: LiveServer) -> None:
    body = chat_body(MODEL, max_tokens=128, prompt_words=20)
    samples = await asyncio.gather(*(post_raw(live, body(number)) for number in range(SLOTS)))
    assert [sample.error for sample in samples] == [None] * SLOTS
    assert [sample.output_tokens for sample in samples] == [128] * SLOTS
    assert [sample.finish_reasons for sample in samples] == [{0: "length"}] * SLOTS
    assert all(sample.text for sample in samples)


async def post_raw(live: LiveServer, body: bytes):
    from tests.integration.http import post

    return await post(live, CHAT, body)
