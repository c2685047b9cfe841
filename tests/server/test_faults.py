"""An engine that breaks its promises: each request it serves still ends, with an answer or an error that says so.

A schedule says what the engine does with one sequence: refuse it, dawdle, send ids that no tokenizer knows, half a
character, an error, a second end, or something after the end.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sampling.detokenizer import Detokenizer
from sampling.parts import Part
from server.engine.protocol import ModelInfo, OnReleased, OnStep
from server.errors import EngineDied, EngineFailed, InternalError, NotReady, Overloaded, ServeError
from server.request import EngineRequest, FinishReason
from server.streaming.choice import Choice
from server.streaming.stream import Stream
from tests.server.conftest import MakeScripted
from tests.support import sse
from tests.support.asgi import Exchange
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.site import CHAT, COMPLETIONS, Served, chat, completion, serving
from tests.support.waiting import turns, until

BYSTANDER = 10**6  # the seed of a request that nothing is wrong with
OUT_OF_RANGE = (-1, -(2**31), 2**32, 2**63, 2**64)  # no tokenizer takes such an id for a number of its own
UNKNOWN = (49152, 2**31, 2**32 - 1)  # beyond the vocabulary: models pad it, so these have no text


@dataclass(frozen=True)
class Wait:
    turns: int


@dataclass(frozen=True)
class Say:
    """One delta."""

    ids: tuple[int, ...]
    finish: FinishReason | None = None
    stop_token: bool = False
    error: type[ServeError] | None = None

    @property
    def breaks(self) -> bool:
        shown = self.ids[:-1] if self.stop_token else self.ids
        return self.error is not None or any(token_id in OUT_OF_RANGE for token_id in shown)


@dataclass(frozen=True)
class Schedule:
    """The engine's way with one sequence. `steps` hold an end; `refusal` is what `submit` raises instead."""

    steps: tuple[Wait | Say, ...]
    refusal: type[Exception] | None = None

    @property
    def to_its_end(self) -> list[Say]:
        """The deltas that count: none after the first that ends it."""
        counted: list[Say] = []
        for step in self.steps:
            if isinstance(step, Say):
                counted.append(step)
                if step.breaks or step.finish is not None:
                    break
        return counted

    @property
    def error(self) -> type[ServeError] | None:
        """What the request fails with, if this is its only sequence."""
        if self.refusal is not None:
            return self.refusal if issubclass(self.refusal, ServeError) else InternalError
        last = self.to_its_end[-1]
        return (last.error or InternalError) if last.breaks else None

    def text(self, tokenizer: Any, prompt: Sequence[int]) -> str:
        """What a reader may see before the failure, or all of it."""
        detokenizer = Detokenizer(tokenizer, prompt)
        said = "".join(
            detokenizer.push(say.ids[:-1] if say.stop_token else say.ids) for say in self.to_its_end if not say.breaks
        )
        return said if self.error else said + detokenizer.flush()


class Unstoppable(FakeSequence):
    def abort(self) -> None:
        super().abort()
        raise RuntimeError("no")


class FaultyEngine(FakeEngine):
    """Plays schedules; the seed of a request says which."""

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        self.schedules: dict[int, Schedule] = {}
        self.submitted: dict[int, FakeSequence] = {}
        self.playing: list[asyncio.Task[None]] = []
        self.cannot_abort: set[int] = set()  # seeds

    def submit(self, request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> FakeSequence:
        seed = request.params.seed
        assert seed is not None
        schedule = self.schedules.get(seed)
        if schedule is not None and schedule.refusal is not None:
            raise schedule.refusal
        kind = Unstoppable if seed in self.cannot_abort else FakeSequence
        sequence = self.submitted[seed] = kind(request, on_step, on_released, self.model, lingers=False)
        self.sequences.append(sequence)
        if schedule is not None:
            self.playing.append(asyncio.create_task(self._play(sequence, schedule)))
        return sequence

    def forget(self) -> None:
        """What earlier examples asked for."""
        for kept in (self.schedules, self.submitted, self.sequences, self.playing):
            kept.clear()

    async def _play(self, sequence: FakeSequence, schedule: Schedule) -> None:
        for step in schedule.steps:  # aborted or not
            if isinstance(step, Wait):
                await turns(step.turns)
            else:
                error = step.error() if step.error else None
                sequence.push(*step.ids, finish=step.finish, stop_token=step.stop_token, error=error)


@pytest.fixture(autouse=True)
def unlogged() -> Iterator[None]:
    """Each fault is logged with its traceback, at a cost."""
    with capture_logs():
        yield


@pytest.fixture
def faulty(model: ModelInfo) -> FaultyEngine:
    return FaultyEngine(model)


@pytest.fixture
async def broken(faulty: FaultyEngine) -> AsyncIterator[Served[FaultyEngine]]:
    async with serving(faulty) as served:
        yield served


# What is drawn
PARTS = (10813, 38887, 235, 227)  # tokens that are bytes of a character; the first two make an emoji
IDS = st.lists(st.sampled_from([504, 3575, 282, *PARTS, *UNKNOWN]), max_size=4).map(tuple)
GARBAGE = st.tuples(IDS, st.sampled_from(OUT_OF_RANGE), IDS).map(lambda parts: (*parts[0], parts[1], *parts[2]))
ERRORS = st.sampled_from([EngineFailed, EngineDied, InternalError, NotReady, Overloaded])
REFUSALS = st.sampled_from([EngineDied, EngineFailed, NotReady, RuntimeError, TypeError])
REASONS = st.sampled_from(FinishReason)

TOKENS = st.builds(Say, IDS)
ENDS = st.one_of(
    st.builds(Say, IDS, REASONS),
    st.builds(Say, IDS.map(lambda ids: (*ids, 2)), st.just(FinishReason.STOP), st.just(True)),
    st.builds(Say, IDS, error=ERRORS),
    st.builds(Say, GARBAGE),
    st.builds(Say, GARBAGE, REASONS),
)
WAITS = st.builds(Wait, st.integers(0, 30))
SCHEDULES = st.builds(
    lambda before, end, after, refusal: Schedule((*before, end, *after), refusal),
    st.lists(TOKENS | WAITS, max_size=6),
    ENDS,
    st.lists(TOKENS | WAITS | ENDS, max_size=3),  # the engine does not know when to stop
    st.none() | st.none() | st.none() | REFUSALS,
)
REQUESTS = st.tuples(
    st.sampled_from([(CHAT, chat()), (COMPLETIONS, completion())]),
    st.booleans(),
    st.lists(SCHEDULES, min_size=1, max_size=3),
)


def check(exchange: Exchange, schedules: list[Schedule], streamed: bool, engine: FaultyEngine, seed: int) -> None:
    assert exchange.complete
    errors = {schedule.error for schedule in schedules} - {None}
    statuses = {error.status for error in errors if error is not None}
    if exchange.status != 200:
        assert exchange.status in statuses
        assert exchange.error["code"] in {error.code for error in errors if error is not None}
        if streamed and len(schedules) == 1:
            assert schedules[0].refusal or not told(engine, schedules[0], seed)
        return
    if not streamed:
        assert not errors
        choices = exchange.json["choices"]
        texts = [choice["text"] if "text" in choice else choice["message"]["content"] for choice in choices]
        assert texts == [told(engine, schedule, seed + k) for k, schedule in enumerate(schedules)]
        return
    events = exchange.events
    assert events.count(sse.DONE) == 1
    assert events[-1] == sse.DONE
    failures = [event["error"] for event in events[:-1] if "error" in event]
    if not errors:
        assert failures == []
        reasons = {k: end.finish.value for k, s in enumerate(schedules) if (end := s.to_its_end[-1]).finish}
        assert sse.finish_reasons(events) == reasons
        assert len(reasons) == len(schedules)
        for k, schedule in enumerate(schedules):
            assert sse.text_of(events, k) == told(engine, schedule, seed + k)
        return
    (failure,) = failures
    assert "error" in events[-2]
    assert failure["code"] in {error.code for error in errors if error is not None}
    for k, schedule in enumerate(schedules):
        if schedule.refusal is None and seed + k in engine.submitted:
            assert told(engine, schedule, seed + k).startswith(sse.text_of(events, k))


def told(engine: FaultyEngine, schedule: Schedule, seed: int) -> str:
    return schedule.text(engine.model.tokenizer.backend, engine.submitted[seed].request.prompt_token_ids)


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(REQUESTS, min_size=1, max_size=3))
async def test_whatever_the_engine_does_every_request_ends_and_the_others_go_on(
    broken: Served[FaultyEngine], requests: list[Any]
) -> None:
    engine = broken.engine
    engine.forget()
    bystander = broken.open(CHAT, chat(stream=True, seed=BYSTANDER))
    await until(lambda: BYSTANDER in engine.submitted)
    fine = engine.submitted[BYSTANDER]
    fine.say("before")

    try:
        exchanges = []
        for number, ((path, payload), streamed, schedules) in enumerate(requests):
            seed = 100 * number
            engine.schedules |= {seed + k: schedule for k, schedule in enumerate(schedules)}
            payload = payload | {"seed": seed, "n": len(schedules), "stream": streamed}
            exchanges.append((broken.open(path, payload), schedules, streamed, engine, seed))
        for exchange, *expected in exchanges:
            check(await exchange, *expected)

        await asyncio.gather(*engine.playing)  # nothing has raised in the engine's own task
        assert broken.services.admission.slots.in_use == 1
        assert engine.in_flight == 1
        fine.say(" after")
        fine.end()
    finally:  # a failed example leaves nothing to the next
        broken.services.pipeline.fail_all(InternalError())
    assert sse.text_of((await bystander).events) == "before after"
    await until(lambda: broken.idle)
    assert engine.in_flight == 0


def ask(site: Served[FaultyEngine], schedule: Schedule, streamed: bool = True, n: int = 1) -> Exchange:
    """A request whose last choice gets `schedule`."""
    site.engine.schedules[n - 1] = schedule
    return site.open(COMPLETIONS, completion(stream=streamed, seed=0, n=n))


HALF_A_CHARACTER = Say(PARTS[:1])
WORD = Say((504,))


@pytest.mark.parametrize("error", [EngineFailed, EngineDied, InternalError])
async def test_an_error_before_the_first_token_is_a_status(
    broken: Served[FaultyEngine], error: type[ServeError]
) -> None:
    for streamed in (True, False):
        exchange = await ask(broken, Schedule((Say((), error=error),)), streamed)
        assert (exchange.status, exchange.error["code"]) == (error.status, error.code)


@pytest.mark.parametrize("tokens", [1, 5])
async def test_an_error_after_tokens_is_an_event_and_the_last_but_one(
    broken: Served[FaultyEngine], tokens: int
) -> None:
    exchange = await ask(broken, Schedule((*[WORD] * tokens, Say((), error=EngineFailed))))
    assert exchange.status == 200
    *before, failure, done = exchange.events
    assert sse.text_of(before) == "The" * tokens
    assert failure["error"]["code"] == "engine_error"
    assert done == sse.DONE


@pytest.mark.parametrize("refusal", [EngineDied, RuntimeError, TypeError, AssertionError])
async def test_a_refused_second_choice_ends_the_first(broken: Served[FaultyEngine], refusal: type[Exception]) -> None:
    exchange = await ask(broken, Schedule((), refusal), n=2)
    assert exchange.status == (503 if refusal is EngineDied else 500)
    assert exchange.error["code"] == ("engine_dead" if refusal is EngineDied else "internal_error")
    assert str(refusal) not in exchange.body.decode()
    assert [sequence.aborted for sequence in broken.engine.sequences] == [True]
    await until(lambda: broken.idle)


@pytest.mark.parametrize("token_id", OUT_OF_RANGE)
async def test_an_id_that_is_no_id_costs_only_its_own_request(broken: Served[FaultyEngine], token_id: int) -> None:
    exchange = await ask(broken, Schedule((WORD, Say((token_id,)), WORD, Say((), FinishReason.STOP))))
    assert sse.text_of(exchange.events[:-2]) == "The"
    assert exchange.events[-2]["error"]["code"] == "internal_error"
    assert broken.engine.in_flight == 0


async def test_half_a_character_at_the_end_is_shown_as_one_that_is_unknown(broken: Served[FaultyEngine]) -> None:
    exchange = await ask(broken, Schedule((WORD, HALF_A_CHARACTER, Say((), FinishReason.LENGTH))))
    assert sse.text_of(exchange.events) == "The\N{REPLACEMENT CHARACTER}"
    exchange = await ask(broken, Schedule((WORD, HALF_A_CHARACTER, Say((), error=EngineFailed))))
    assert sse.text_of(exchange.events[:-2]) == "The"  # there is nothing to show after an error


async def test_what_follows_an_end_changes_nothing(broken: Served[FaultyEngine]) -> None:
    end = Say((504,), FinishReason.LENGTH)
    late = (end, Say((504,), FinishReason.STOP), WORD, Say((), error=EngineFailed), Say((-1,)))
    exchange = await ask(broken, Schedule((WORD, end, *late)))
    assert sse.text_of(exchange.events) == "TheThe"
    assert sse.finish_reasons(exchange.events) == {0: "length"}
    assert exchange.events[-1] == sse.DONE
    (record,) = await broken.records()
    assert (record["outcome"], record["output_tokens"]) == ("ok", 2)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_sequence_the_engine_forgets_ends_with_the_time_limit(faulty: FaultyEngine, streamed: bool) -> None:
    async with serving(faulty, "admission.request_timeout=0.2") as site:
        exchange = await ask(site, Schedule(()), streamed)
        assert exchange.status == 504
        assert exchange.error["code"] == "request_timeout"
        assert site.engine.in_flight == 0
        await until(lambda: site.idle)


async def test_an_engine_that_dies_ends_every_stream_with_an_error(scripted: MakeScripted) -> None:
    engine = scripted(step_ms=2, max_model_len=8192)
    async with serving(engine) as site:
        exchanges = [site.open(CHAT, chat(stream=True, max_tokens=8000)) for _ in range(5)]
        await until(lambda: all(exchange.writes for exchange in exchanges))
        engine.kill()
        for exchange in exchanges:
            events = (await exchange).events
            assert events[-2]["error"]["code"] == "engine_dead"
            assert events[-1] == sse.DONE
        assert (await site.post(CHAT, chat())).status == 503
        await until(lambda: site.idle)


@pytest.fixture
async def hasty(faulty: FaultyEngine) -> AsyncIterator[Served[FaultyEngine]]:
    """A stream that hangs ends after a second, with the wrong error. Tasks may fail unseen."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    async with serving(faulty, "admission.request_timeout=1") as served:
        yield served


async def test_an_abort_that_raises_does_not_keep_a_finished_request_open(hasty: Served[FaultyEngine]) -> None:
    hasty.engine.cannot_abort = {0}
    exchange = await ask(hasty, Schedule((WORD, Say((), FinishReason.STOP))))
    assert sse.finish_reasons(exchange.events[:3]) == {0: "stop"}
    assert exchange.events[2:] == [sse.DONE]
    await until(lambda: hasty.idle)


async def test_an_abort_that_raises_keeps_no_other_sequence_running(hasty: Served[FaultyEngine]) -> None:
    hasty.engine.cannot_abort = {0}
    exchange = ask(hasty, Schedule((WORD,)), n=2)
    await until(lambda: len(hasty.engine.sequences) == 2)
    exchange.disconnect()
    await until(lambda: hasty.idle)
    assert [sequence.aborted for sequence in hasty.engine.sequences] == [True, True]


async def test_an_abort_that_raises_does_not_reach_the_engines_task(hasty: Served[FaultyEngine]) -> None:
    hasty.engine.cannot_abort = {0}
    exchange = await ask(hasty, Schedule((WORD, Say((-1,)))))
    assert exchange.events[-2]["error"]["code"] == "internal_error"
    await asyncio.gather(*hasty.engine.playing)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_fault_of_ours_in_the_last_delta_ends_the_request(
    hasty: Served[FaultyEngine], monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    encode = Stream.encode

    def encode_all_but_the_last(stream: Stream, choice: Choice, parts: Sequence[Part]) -> bytes:
        if choice.finish_reason is not None:
            raise RuntimeError("no")
        return encode(stream, choice, parts)

    monkeypatch.setattr(Stream, "encode", encode_all_but_the_last)
    exchange = await ask(hasty, Schedule((WORD, Say((), FinishReason.STOP))), streamed)
    error = exchange.events[-2]["error"] if streamed else exchange.error
    assert error["code"] == "internal_error"
