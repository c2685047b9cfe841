"""However a reader falters, what it gets adds up to what it would have got: each protocol, each kind of part."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from prometheus_client import REGISTRY

from server.engine.protocol import ModelInfo
from tests.conformance import normal
from tests.conformance.cases import CALLS, EMOJI, TEXT, THOUGHTS, Case
from tests.conformance.replay import logprob_of
from tests.conformance.test_chat import QUIET, ids_of
from tests.conformance.test_protocols import CASES, anonymous, of_messages, of_responses
from tests.support import messages, responses, sse
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.waiting import turns, until

FILLER = " word" * 1600
BUFFERS = {False: 8_000, True: 60_000}  # bytes, without log probabilities and with them: less than the filler takes


@dataclass(frozen=True)
class Stop:
    """The reader stops before token `at`, and goes on before token `until`. A longer answer fills its buffer first."""

    at: int
    until: int


def schedules(case: Case, tokens: int) -> list[Stop]:
    random = Random(tokens)
    found = [Stop(0, tokens + 1), Stop(0, random.randint(1, tokens))]
    while len(found) < 4:
        at = random.randint(1, tokens - 1)
        found.append(Stop(at, random.randint(at + 1, tokens + 1)))
    return found


async def play(site: Served[FakeEngine], exchange: Exchange, case: Case, stop: Stop, *, falter: bool) -> Exchange:
    """The same tokens, a step for each, whether or not the reader falters."""
    model = site.engine.model
    before = len(site.engine.sequences)
    sequences = [await site.engine.sequence(before + index) for index in range(case.asks.get("n", 1))]
    ids = ids_of(model, case)
    logprobs = sequences[0].request.params.logprobs
    filler = model.tokenizer.encode(FILLER, add_special_tokens=False)
    for position, token_id in enumerate(ids):
        if position == stop.at:
            await read_on(site, exchange)
            if falter:
                exchange.connection.pause()
            push(sequences[0], filler, logprobs)
        if position == stop.until and falter:
            await read_on(site, exchange)
        for sequence in sequences:
            push(sequence, [token_id], logprobs, case if position == len(ids) - 1 else None)
    await read_on(site, exchange)
    return await exchange


def push(sequence: FakeSequence, ids: Sequence[int], logprobs: int | None, ends: Case | None = None) -> None:
    sequence.push(
        *ids,
        logprobs=None if logprobs is None else [logprob_of(token_id, logprobs) for token_id in ids],
        finish=ends and ends.ends,
        stop_token=ends is not None and ends.finish != "length",
    )


async def read_on(site: Served[FakeEngine], exchange: Exchange) -> None:
    exchange.connection.resume()
    await until(lambda: not any(stream.meter.parked for stream in site.services.pipeline._tasks.values()))
    await turns(2)


async def check(model: ModelInfo, case: Case, path: str, asks: dict[str, Any], read: Callable[[bytes], Any]) -> None:
    before = merged_deltas()
    buffer = f"http.stream_buffer_bytes={BUFFERS['logprobs' in asks or 'top_logprobs' in asks]}"
    async with serving(FakeEngine(model), *QUIET, buffer, *case.settings) as site:
        for stop in schedules(case, len(ids_of(model, case))):
            steady = await play(site, site.open(path, asks), case, stop, falter=False)
            faltering = await play(site, site.open(path, asks), case, stop, falter=True)
            assert (steady.status, faltering.status) == (200, 200), steady.body
            assert read(faltering.body) == read(steady.body), stop
    assert merged_deltas() > before


def merged_deltas() -> float:
    return REGISTRY.get_sample_value("streamgauge_merged_deltas_total") or 0


def in_order(found: normal.Normal) -> normal.Normal:
    assert list(found.choices) == sorted(found.choices), "choice k first appears after choice k - 1"
    return found


@pytest.mark.parametrize("case", [*TEXT, *CALLS, *THOUGHTS], ids=lambda case: case.name)
async def test_a_chat_adds_up(model: ModelInfo, case: Case) -> None:
    asks = chat(**case.asks, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    await check(model, case, CHAT, asks, lambda body: in_order(normal.of_chat_stream(sse.events(body))))


@pytest.mark.parametrize(
    "asks",
    [
        {"n": 2},
        {"logprobs": 2, "return_token_ids": True, "n": 3},
        {"logprobs": 1, "echo": True, "stop": ["\U0001fae0"]},
    ],
    ids=lambda asks: " ".join(asks),
)
async def test_a_completion_adds_up(model: ModelInfo, asks: dict[str, Any]) -> None:
    case = Case("", EMOJI, None, asks)
    payload = completion(**asks, stream=True, stream_options={"include_usage": True})
    await check(model, case, COMPLETIONS, payload, lambda body: in_order(normal.of_completion_stream(sse.events(body))))


@pytest.mark.parametrize("case", [case for case in CASES if "stop" not in case.asks], ids=lambda case: case.name)
async def test_a_response_adds_up(model: ModelInfo, case: Case) -> None:
    await check(model, case, responses.RESPONSES, of_responses(case) | {"stream": True}, read_response)


@pytest.mark.parametrize("case", [case for case in THOUGHTS if case.name == "a thought, then a call"], ids=["thought"])
async def test_a_response_with_log_probabilities_adds_up(model: ModelInfo, case: Case) -> None:
    """Only its text has any: neither the thought's tokens nor the call's."""
    asks = of_responses(case) | {"stream": True, "top_logprobs": 1, "include": ["message.output_text.logprobs"]}
    await check(model, case, responses.RESPONSES, asks, read_response)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_message_adds_up(model: ModelInfo, case: Case) -> None:
    def read(body: bytes) -> Any:
        return anonymous(messages.assembled(body))

    await check(model, case, messages.MESSAGES, of_messages(case) | {"stream": True}, read)


def read_response(body: bytes) -> Any:
    """What it ends as, and what its deltas say."""
    found = responses.events(body)
    deltas: dict[tuple[str, int], tuple[str, list[Any]]] = {}
    for event in found:
        if event["type"].endswith(".delta"):
            place = event["type"], event["output_index"]
            text, logprobs = deltas.get(place, ("", []))
            deltas[place] = text + event["delta"], logprobs + event.get("logprobs", [])
    return anonymous(responses.final_of(found)), deltas
