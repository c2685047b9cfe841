"""A Stream owns all state of its request; a socket is only a reader attached to it."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any, Protocol

import structlog
import tokenizers

from sampling.parts import Part
from server.errors import ClientGone, InternalError, ServeError, SlowReader
from server.ledger import Ledger, Meters, step_meter
from server.request import GenerationRequest, RequestState
from server.streaming.answer import Usage
from server.streaming.backlog import Backlog
from server.streaming.choice import Choice
from server.streaming.outbox import KEEP_ALIVE, Outbox
from server.streaming.sse import EventEncoder

_log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Where a stream's events go: to the one reader it has, or into a log."""

    def put(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Stream:
    """One request from submission to its end, streamed (with an `encoder`) or collected (without).

    Its events go to the reader of `outbox`, or else into `sink`. While the outbox is full its deltas merge; both, what
    waits there and what merges, are bounded by `buffer_bytes`. The end of a choice goes out past the bound, at most
    with all that had merged.
    `entered` is set once it waits for the engine or runs in it, `started` at the first event, `finished` at the end; an
    end sets all three. `error` tells a failure.
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
        self.entered = asyncio.Event()
        self.on_first: Callable[[], None] | None = None  # called at the first delta
        self._withdraw: Callable[[], None] | None = None
        self._running = len(self.choices)

        # Delivery state
        self.outbox = Outbox(self.meter, limit_bytes=buffer_bytes, on_room=self._catch_up)
        self._backlog = Backlog(buffer_bytes)  # empty unless the outbox is full
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
            self.output_tokens,
            sum(choice.cached_tokens for choice in first_of_prompts),
            sum(choice.reasoning_tokens for choice in choices),
        )

    @property
    def output_tokens(self) -> int:
        return sum(choice.output_tokens for choice in self.choices)

    @property
    def tokens_used(self) -> int:
        """What its caller pays for: nothing before the engine has begun."""
        return 0 if self.on_first is None else self.request.prompt_tokens + self.output_tokens

    def queue(self, withdraw: Callable[[], None]) -> None:
        """It waits for its turn; should it end meanwhile, `withdraw` is called."""
        self._withdraw = withdraw
        self.entered.set()
        if self.state.ended:
            withdraw()

    def encode(self, choice: Choice, parts: Sequence[Part]) -> bytes:
        """The events of a step: new parts, the choice's end, and the stream's end after the last choice's."""
        if choice.finish_reason is not None:
            return self._encode_end(choice, parts)
        choice.tell(parts)
        if self._encoder is None or not parts:
            return b""
        events = self._encoder.delta(choice, parts)
        choice.opened = True
        return self._in_order(choice, events)

    def hold(self, choice: Choice, parts: Sequence[Part]) -> None:
        """Instead of encoding a step while the outbox is full: its parts merge; raises SlowReader at the bound."""
        if parts:
            self._backlog.add(choice, parts)

    def deliver(self, events: bytes) -> None:
        """Hand events to the reader; the first lets the headers leave."""
        if events:
            self.has_output = True
            self._sink.put(events)
            self.started.set()

    def delivered(self, choice: Choice, parts: Sequence[Part], now: int) -> None:
        """Book what a step brought at `now`, and end the choice or the request where that is due."""
        if self.state is RequestState.WAITING:
            self.state = self.state.advance(RequestState.RUNNING)
            if self.on_first is not None:
                self.on_first()
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

    def _encode_end(self, choice: Choice, parts: Sequence[Part]) -> bytes:
        self._book_end(choice, parts)
        if self._encoder is None:
            choice.tell(parts)
            return b""
        events = self._encode_held(self._encoder, choice)
        choice.tell(parts)
        if parts:
            events += self._encoder.delta(choice, parts)
            choice.opened = True
        last = self._running == 1
        timings = self.ledger_report() if last and self._include_timings else None
        events += self._encoder.finish(choice, timings)
        choice.opened = True
        events = self._in_order(choice, events)
        if last:
            self._count_tokens()
            events += self._encoder.end(self.usage)
        return events

    def _encode_held(self, encoder: EventEncoder, choice: Choice) -> bytes:
        """What the choice said while the outbox was full, each run with its own tokens."""
        events, later = b"", choice.released
        for run in self._backlog.take(choice):
            choice.tell(run.parts)
            choice.released = run.tokens
            events += encoder.delta(choice, run.parts)
            choice.opened = True
        choice.released = later
        return events

    def _encode_backlog(self, encoder: EventEncoder) -> bytes:
        events = b""
        for choice in self._backlog.choices:
            choice.track.event(monotonic_ns(), self._meters.gap)
            events += self._in_order(choice, self._encode_held(encoder, choice))
        return events

    def _catch_up(self) -> None:
        """The outbox has room again. No engine step waits for this, so that a failure here has nobody else to tell."""
        if self._encoder is None:
            return
        try:
            self.deliver(self._encode_backlog(self._encoder))
        except Exception:
            _log.exception("catch_up_failed", request=self.request.id)
            self.fail(InternalError())

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
        if parts or choice in self._backlog:
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
        """Behind what was said before the failure, unless it is for that that the reader is too slow."""
        said = b"" if isinstance(error, SlowReader) else self._encode_backlog(encoder)
        self._sink.put(said + encoder.error(error))

    def _end(self, state: RequestState) -> None:
        self.state = self.state.advance(state)
        self._count_tokens()
        self.ledger.error = self.error.code if self.error else None
        self._backlog.clear()
        self._sink.close()
        self.entered.set()
        self.started.set()
        self.finished.set()
        if self._withdraw is not None:
            self._withdraw()

    def _count_tokens(self) -> None:
        self.ledger.output_tokens = self.output_tokens
