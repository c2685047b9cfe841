"""Many streams in one batch: all complete, and one whose handler fails is nobody else's business."""

import asyncio
import random

from prometheus_client import REGISTRY

from bench.bodies import WORDS, chat_body
from bench.client import stream_request
from sampling.params import SamplingParams
from server.errors import InternalError
from server.request import EngineRequest, FinishReason, TokenDelta
from tests.integration.http import CHAT, MODEL
from tests.integration.live import DEADLINE_S, SLOTS, LiveServer, Sequence, all_ended, until

TOKENS = 24


async def test_32_concurrent_streams_of_128_tokens_all_complete(live: LiveServer) -> None:
    body = chat_body(MODEL, max_tokens=128, prompt_words=20)
    samples = await asyncio.gather(
        *(stream_request(live.host, live.port, CHAT, body(number), deadline_s=DEADLINE_S) for number in range(SLOTS))
    )
    assert [(sample.error, sample.detail) for sample in samples] == [(None, "")] * SLOTS
    assert [sample.output_tokens for sample in samples] == [128] * SLOTS
    assert [sample.finish_reasons for sample in samples] == [{0: "length"}] * SLOTS
    assert all(sample.text for sample in samples)


class Hostile(BaseException):
    """Not even an Exception."""


class Failing(Sequence):
    """Its handler raises at every step."""

    def on_step(self, delta: TokenDelta) -> None:
        super().on_step(delta)
        raise Hostile


def recitals(live: LiveServer) -> list[EngineRequest]:
    """One request per slot whose continuation is beyond doubt: a list of words, recited eight times already.

    So it does not depend on the batch either, in which a 16-bit model's logits shift by a few hundredths.
    """
    requests = []
    for number in range(SLOTS):
        words = " ".join(random.Random(number).sample(WORDS, 8))
        prompt = "".join(f"{line}. {words}\n" for line in range(1, 9)) + "9."
        params = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True)
        requests.append(EngineRequest(f"recital-{number}", live.engine.model.tokenizer.encode(prompt), params))
    return requests


async def recite(live: LiveServer, failing: int | None) -> list[Sequence]:
    sequences = []
    for number, request in enumerate(recitals(live)):
        sequence = (Failing if number == failing else Sequence)(request)
        sequence.handle = live.engine.submit(request, sequence.on_step, sequence.released.set)
        sequences.append(sequence)
    await all_ended(*sequences)
    await until(lambda: not live.unfinished, "every request has left the engine")
    return sequences


def step_failures() -> float:
    return REGISTRY.get_sample_value("streamgauge_step_failures_total") or 0.0


def test_a_handler_that_raises_at_every_step_ends_its_own_stream_only(live: LiveServer) -> None:
    failing = 5
    quiet = live.run(recite(live, failing=None))
    before = step_failures()
    disturbed = live.run(recite(live, failing=failing))

    assert step_failures() == before + 1, "aborted at its first failure"
    first, told = disturbed[failing].deltas
    assert first.token_ids
    assert isinstance(told.error, InternalError)
    for number, (calm, other) in enumerate(zip(quiet, disturbed, strict=True)):
        assert len(calm.ids) == TOKENS
        assert calm.deltas[-1].finish_reason is FinishReason.LENGTH
        if number != failing:
            assert other.ids == calm.ids
            assert other.deltas[-1].finish_reason is FinishReason.LENGTH
    assert len({tuple(sequence.ids) for sequence in quiet}) == SLOTS, "each recites its own words"


async def test_requests_after_a_failing_handler_are_served(live: LiveServer) -> None:
    sample = await stream_request(
        live.host, live.port, CHAT, chat_body(MODEL, max_tokens=4, prompt_words=2)(0), deadline_s=DEADLINE_S
    )
    assert sample.ok
