"""An engine that does nothing by itself: a test says which sequence gets which delta, and when."""

import asyncio
from collections.abc import Sequence
from time import monotonic_ns

from sampling.logprobs import TokenLogprob
from server.engine.guard import push
from server.engine.protocol import ModelInfo, OnReleased, OnStep
from server.errors import ServeError
from server.request import EngineRequest, FinishReason, TokenDelta
from tests.support.waiting import DEADLINE_S


class FakeSequence:
    """What the pipeline submitted. `push` is an engine step for it alone."""

    def __init__(
        self, request: EngineRequest, on_step: OnStep, on_released: OnReleased, model: ModelInfo, *, lingers: bool
    ) -> None:
        self.request = request
        self.aborted = False
        self.released = False
        self._on_step = on_step
        self._on_released = on_released
        self._lingers = lingers
        self._model = model
        self._scheduled_ns = monotonic_ns()

    def abort(self) -> None:
        self.aborted = True
        if not self._lingers:
            self.release()

    def release(self) -> None:
        """The engine lets go of it."""
        if not self.released:
            self.released = True
            self._on_released()

    def push(
        self,
        *token_ids: int,
        finish: FinishReason | None = None,
        error: ServeError | None = None,
        stop_token: bool = False,
        scheduled_ns: int = 0,
        sampled_ns: int = 0,
        received_ns: int = 0,
        sample_ns: int = 0,
        logprobs: Sequence[TokenLogprob] | None = None,
        prompt_logprobs: Sequence[TokenLogprob | None] | None = None,
        cached_tokens: int = 0,
    ) -> None:
        sampled_ns = sampled_ns or monotonic_ns()
        scheduled_ns = scheduled_ns or self._scheduled_ns
        received_ns = received_ns or monotonic_ns()
        delta = TokenDelta(token_ids, finish, error, stop_token, scheduled_ns, sampled_ns, received_ns, sample_ns)
        delta.logprobs, delta.prompt_logprobs, delta.cached_tokens = logprobs, prompt_logprobs, cached_tokens
        push(self._on_step, delta, self.abort)
        if (finish is not None or error is not None) and not self._lingers:
            self.release()

    def say(self, text: str, finish: FinishReason | None = None) -> None:
        """One delta with all of `text`'s tokens."""
        self.push(*self._model.tokenizer.encode(text, add_special_tokens=False), finish=finish)

    def end(self, finish: FinishReason = FinishReason.STOP) -> None:
        """The model's end-of-sequence token."""
        self.push(2, finish=finish, stop_token=finish is FinishReason.STOP)


class FakeEngine:
    """Ready at once, unless told to `hold` its start or to fail it with `broken`."""

    def __init__(self, model: ModelInfo, *, broken: Exception | None = None) -> None:
        self._model = model
        self._broken = broken
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.refusal: ServeError | None = None
        self.last_step_ns = 0
        self.lingers = False  # sequences stay in the engine until a test releases them
        self.alive = False
        self.closed = False
        self.sequences: list[FakeSequence] = []
        self._submitted = asyncio.Event()

    @property
    def model(self) -> ModelInfo:
        return self._model

    @property
    def in_flight(self) -> int:
        return sum(not sequence.aborted for sequence in self.sequences)

    async def start(self) -> None:
        await self.may_start.wait()
        if self._broken is not None:
            raise self._broken
        self.alive = True

    def submit(self, request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> FakeSequence:
        if self.refusal is not None:
            raise self.refusal
        self.sequences.append(FakeSequence(request, on_step, on_released, self._model, lingers=self.lingers))
        self._submitted.set()
        return self.sequences[-1]

    async def close(self) -> None:
        self.closed = True

    async def sequence(self, index: int = 0) -> FakeSequence:
        """The sequence submitted at place `index`, once it is there."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.sequences) <= index:
                self._submitted.clear()
                await self._submitted.wait()
        return self.sequences[index]
