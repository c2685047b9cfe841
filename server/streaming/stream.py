"""A Stream owns all state of its request; a socket is only a reader attached to it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Any, Protocol

import tokenizers

from sampling.parts import Part
from server.errors import ClientGone, ServeError, SlowReader
from server.ledger import Ledger, Meters, step_meter
from server.request import GenerationRequest, RequestState
from server.streaming.answer import Usage
from server.streaming.choice import Choice
from server.streaming.outbox import KEEP_ALIVE, Outbox
from server.streaming.sse import EventEncoder


class Sink(Protocol):
    """Where a stream's events go: to the one reader it has, or into a log."""

    def put(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Stream:
    """One request from submission to its end, streamed (with an `encoder`) or collected (without).

    Its events go to the reader of `outbox`, or else into `sink`.
    `started` is set at the first event or at the end; `finished` at the end. `error` tells a failure.
    """

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: tokenizers.Tokenizer,
        ledger: Ledger,
        meters: Meters,
        *,
        encoder: EventEncoder | None = None,
        include_timings: bool = False,
        buffer_bytes: int = 1 << 20,
        sink: Sink | None = None,
    ) -> None:
        self.request = request
        self.ledger = ledger
        self.meter = step_meter(ledger.clock, meters)
        self.choices = [Choice(i, s, tokenizer, ledger, request.reading) for i, s in enumerate(request.sequences())]
        self._meters = meters
        self._encoder = encoder
        self._include_timings = include_timings
        self.keep_alive = encoder.keep_alive if encoder is not None else KEEP_ALIVE

        # Request state
        self.state = RequestState.WAITING
        self.error: ServeError | None = None
        self.started = asyncio.Event()
        self.finished = asyncio.Event()
        self._running = len(self.choices)

        # Delivery state
        self.outbox = Outbox(self.meter, limit_bytes=buffer_bytes)
        self._sink = sink or self.outbox
        self.has_output = False
        self.headers_left = False
        self._appeared = 0  # choices 0 … _appeared − 1 have shown an event

    @property
    def usage(self) -> Usage:
        """What the request has used so far."""
        choices = self.choices
        first_of_prompts = choices[:: self.request.n]
        return Usage(
            self.request.prompt_tokens,
            sum(choice.output_tokens for choice in choices),
            sum(choice.cached_tokens for choice in first_of_prompts),
            sum(choice.reasoning_tokens for choice in choices),
        )

    def encode(self, choice: Choice, parts: Sequence[Part]) -> bytes:
        """The events of a step: new parts, the choice's end, and the stream's end after the last choice's."""
        if choice.finish_reason is not None:
            self._book_end(choice, parts)
        if self._encoder is None:
            return b""
        events = b""
        if parts:
            events = self._encoder.delta(choice, parts)
            choice.opened = True
        if choice.finish_reason is None:
            return self._in_order(choice, events) if events else b""
        last = self._running == 1
        timings = self.ledger_report() if last and self._include_timings else None
        events += self._encoder.finish(choice, timings)
        choice.opened = True
        events = self._in_order(choice, events)
        if last:
            self._count_tokens()
            events += self._encoder.end(self.usage)
        return events

    def deliver(self, events: bytes) -> None:
        """Hand events to the reader, the first of which lets the headers leave; raises SlowReader."""
        if events:
            self.has_output = True
            self._sink.put(events)
            self.started.set()

    def delivered(self, choice: Choice, parts: Sequence[Part], now: int) -> None:
        """Book what a step brought at `now`, and end the choice or the request where that is due."""
        if self.state is RequestState.WAITING:
            self.state = self.state.advance(RequestState.RUNNING)
        if choice.finish_reason is not None:
            self._end_choice(choice)
        elif parts:
            choice.track.event(now, self._meters.gap)

    def fail(self, error: ServeError) -> None:
        """End the request with `error`, unless it has ended: as an event where a status comes too late."""
        if self.state.ended:
            return
        self.error = error
        if isinstance(error, ClientGone):
            self._end(RequestState.CANCELLED)
            return
        try:
            if self._encoder is not None and (self.headers_left or self.has_output):
                self._put_error(self._encoder, error)
        finally:
            self._end(RequestState.FAILED)

    def cancel(self) -> None:
        """The client went away."""
        self.fail(ClientGone())

    def ledger_report(self) -> dict[str, Any]:
        """Timings as the caller sees them: up to where the encoding of what carries them begins."""
        self._count_tokens()
        return self.ledger.report(self.ledger.clock.here())

    def _in_order(self, choice: Choice, events: bytes) -> bytes:
        """Choice k first appears after choice k − 1: clients index their list of choices by it."""
        if choice.index > self._appeared:
            choice.held.append(events)
            return b""
        if choice.index < self._appeared:
            return events
        self._appeared += 1
        while self._appeared < len(self.choices) and (held := self.choices[self._appeared].held):
            events += b"".join(held)
            held.clear()
            self._appeared += 1
        return events

    def _book_end(self, choice: Choice, parts: Sequence[Part]) -> None:
        """A choice's end is booked before it is encoded, so that the timings it carries are whole."""
        if parts:
            choice.track.event(monotonic_ns(), self._meters.gap)
        choice.track.close(choice.output_tokens)
        if choice.finish_reason is not None:
            self.ledger.finish_reasons.append(choice.finish_reason.value)

    def _end_choice(self, choice: Choice) -> None:
        choice.let_go()  # harmless unless a stop string ended it before the engine did
        self._running -= 1
        if self._running == 0:
            self._end(RequestState.FINISHED)

    def _put_error(self, encoder: EventEncoder, error: ServeError) -> None:
        with suppress(SlowReader):  # too far behind even for this: the outbox ends unfinished
            self._sink.put(encoder.error(error))

    def _end(self, state: RequestState) -> None:
        self.state = self.state.advance(state)
        self._count_tokens()
        self.ledger.error = self.error.code if self.error else None
        self._sink.close()
        self.started.set()
        self.finished.set()

    def _count_tokens(self) -> None:
        self.ledger.output_tokens = sum(choice.output_tokens for choice in self.choices)
