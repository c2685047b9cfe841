"""When a request may enter the engine, and which are turned away before any work is done on them.

    apply → (wait in the queue) → permit → … → released

A request is refused at once when the wait foreseen for it is longer than `max_wait` or than it has time. What waits
does so for `max_wait` at most. All state changes happen on the event loop, in this class and what it owns.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic_ns

import structlog

from server.admission.batching import Batching
from server.admission.controller import SloController
from server.admission.forecast import Forecast
from server.admission.permits import Permit, Slots
from server.admission.prefills import Prefills
from server.admission.queue import FairQueue
from server.admission.shares import Shares
from server.admission.ticket import Load, Ticket
from server.config import AdmissionSettings
from server.errors import Overloaded, RequestTimeout, ServeError, ShuttingDown
from server.request import LOW, Caller, GenerationRequest

RELEASE_DEADLINE_S = 30.0
"""An engine that does not confirm an abort for so long has lost it; the slots are used again."""

_log = structlog.get_logger(__name__)


class Admission:
    """Slots, queue and forecasts of one engine. `max_wait` in seconds. Nothing is admitted before `open`."""

    def __init__(self, settings: AdmissionSettings, *, max_wait: float) -> None:
        self.slots = Slots(settings.max_batch_size or 1)
        self.queue = FairQueue()
        self.shares = Shares()
        self.forecast = Forecast()
        self.controller: SloController | None = None
        self.max_wait = max_wait
        self.refusals: Counter[str] = Counter()  # by reason
        self.closed = False
        self.busy_since_ns = 0  # since when there has always been something in the engine
        self._settings = settings
        self._batching = Batching(0.0, (), 1)
        self._prefill_window = 1.0
        self._prefills = Prefills(self.forecast)
        self._alarm: asyncio.TimerHandle | None = None
        self._now: Callable[[], float] = lambda: asyncio.get_running_loop().time()

    def open(self, *, max_num_seqs: int, max_batch_tokens: int) -> None:
        """The engine is ready, with that many sequences and tokens in a step."""
        settings = self._settings
        ceiling = min(settings.max_batch_size or max_num_seqs, max_num_seqs)
        self.slots.limit = ceiling
        self._batching = Batching(settings.max_queue_delay, settings.preferred_batch_size, max_batch_tokens)
        # Two steps' worth: the engine schedules the next while it computes one, and more would only queue there, where
        # neither fairness nor `max_wait` reaches.
        self._prefill_window = 2.0 * max_batch_tokens
        if settings.slo.ttft_p99_ms is not None or settings.slo.tpot_p99_ms is not None:
            self.controller = SloController(settings.slo, self.max_wait, ceiling, self._now)

    def close(self) -> None:
        """Let nobody in any more; who waits is told."""
        self.closed = True
        for ticket in self.queue.waiting:
            ticket.refuse(ShuttingDown())

    def check(self, caller: Caller, body_bytes: int | None) -> None:
        """Raises Overloaded or ShuttingDown for a request that `apply` would refuse, by the size of its body alone."""
        if self.closed:
            raise ShuttingDown
        foreseen = self._foreseen(caller, self.forecast.prompt_tokens(body_bytes or 1024), 1)
        self._check_wait(foreseen, None)
        if self._is_full and not self._enters_now(caller, 1) and self.queue.victim(caller.name, caller.rank) is None:
            raise self._no_place(foreseen)

    def pressure(self, caller: Caller) -> bool:
        """Whether a request of `caller` should rather be cut short than make others wait."""
        degrade = self._settings.degrade
        if degrade.max_tokens is None or caller.rank < LOW:
            return False
        return self._foreseen(caller, 1, 1) > degrade.from_wait

    def apply(self, request: GenerationRequest, timeout: float) -> Ticket:
        """A place in the queue for a request that has `timeout` seconds in all; raises Overloaded or ShuttingDown."""
        if self.closed:
            raise ShuttingDown
        ticket = self._ticket(request, timeout)
        self.shares.call(ticket.caller, ticket.arrived)
        ticket.foreseen = self._foreseen(request.caller, ticket.tokens, int(ticket.load.sequences))
        self._check_wait(ticket.foreseen, timeout)
        if self._is_full and not self._enters_now(request.caller, int(ticket.load.sequences)):
            self._make_room(ticket)
        self.queue.push(ticket)
        self._dispatch()
        return ticket

    @asynccontextmanager
    async def permit(self, ticket: Ticket) -> AsyncIterator[Permit]:
        """Wait for the ticket's turn and hold its slots; at the end wait until the engine has let go of them.

        Raises Overloaded after `max_wait` seconds, RequestTimeout when the request's own time is over, and whatever the
        ticket was refused with.
        """
        permit = await self._granted(ticket)
        try:
            yield permit
        finally:
            await self._until_returned(permit)

    def prefilled(self, permit: Permit) -> None:
        """The engine has brought the first token of the permit's request."""
        now = self._now()
        if not self._prefills.first_token(permit, now):
            return
        if self.controller is not None:
            at_best = permit.prompt_tokens / self.forecast.prefill_rate if self.forecast.prefill_rate else 0.0
            self.controller.first_token(now - permit.granted_at, at_best, limiting=self._limiting)
            self._steer()
        self._dispatch()

    def took_per_token(self, seconds: float) -> None:
        """A choice's time per output token."""
        if self.controller is not None:
            self.controller.answered(seconds, limiting=self._limiting)
            self._steer()
            self._dispatch()

    @property
    def _limiting(self) -> bool:
        return bool(self.queue) or self.slots.free <= 0

    def _steer(self) -> None:
        if self.controller is not None:
            self.slots.limit = self.controller.limit

    def _ticket(self, request: GenerationRequest, timeout: float) -> Ticket:
        sequences = len(request.prompts) * request.n
        tokens = request.prompt_tokens + sequences * self.forecast.answer_tokens(request.params.max_tokens)
        now = self._now()
        return Ticket(request, tokens, Load(request.prompt_tokens, sequences), now + timeout, now)

    def _foreseen(self, caller: Caller, tokens: float, sequences: int) -> float:
        """Seconds that a request of `caller` with so many tokens and sequences will wait if it comes now."""
        if self._enters_now(caller, sequences):
            return 0.0
        ahead = self.queue.ahead(caller.name, caller.rank, tokens)
        prompt_tokens = ahead.prompt_tokens + self._prefills.tokens - self._window()
        free = self.slots.free - (
            self.shares.reserve(self.slots) if self.shares.closed_to(caller.name, self.slots) else 0
        )
        sequences = min(sequences, self.slots.limit)
        return self.forecast.wait(Load(prompt_tokens, ahead.sequences + sequences - free), max(self.slots.limit, 1))

    def _check_wait(self, foreseen: float, timeout: float | None) -> None:
        if foreseen * self.forecast.margin > self.max_wait:
            raise self._overloaded("predicted_wait", foreseen, max_wait_s=self.max_wait)
        if timeout is not None and foreseen > timeout:
            raise self._overloaded("deadline", foreseen, timeout_s=timeout)

    def _overloaded(self, reason: str, foreseen: float, **figures: float) -> Overloaded:
        self.refusals[reason] += 1
        return Overloaded(
            retry_after=foreseen - self.max_wait,
            figures={
                "reason": reason,
                "predicted_wait_s": round(foreseen, 3),
                **{name: round(value, 3) for name, value in figures.items()},
                "queued_requests": len(self.queue),
                "running_sequences": self.slots.in_use,
                "max_batch_size": self.slots.limit,
            },
        )

    def _make_room(self, ticket: Ticket) -> None:
        """In a full queue the longest line gives way to who has less waiting; raises Overloaded."""
        victim = self.queue.victim(ticket.caller, ticket.rank)
        if victim is not None and victim.granted.done():  # its client has gone, and nobody is refused
            self.queue.remove(victim)
            return
        error = self._no_place(ticket.foreseen)
        if victim is None:
            raise error
        self.queue.remove(victim)
        victim.refuse(error)

    @property
    def _is_full(self) -> bool:
        return len(self.queue) >= self._settings.max_queue_size

    def _no_place(self, foreseen: float) -> Overloaded:
        return self._overloaded("queue_full", foreseen, max_queue_size=self._settings.max_queue_size)

    def _enters_now(self, caller: Caller, sequences: int) -> bool:
        return (
            self._has_slots(sequences)
            and not self._passed_over(caller.name)
            and not self.queue.waits(caller.name, caller.rank)
            and self.queue.peek(self._passed_over) is None
        )

    def _passed_over(self, caller: str) -> bool:
        """Whether it isn't this caller's turn, whatever waits: what is free is kept for others, or it has prompts to
        wait for. Who has nothing in the engine need not wait for the prompts of others; or not for many.
        """
        window = self._window() * (1 if self.shares.held[caller] else 2)
        return bool(self._prefills and self._prefills.tokens >= window) or self.shares.closed_to(caller, self.slots)

    def _has_slots(self, sequences: int) -> bool:
        return self.slots.free >= min(sequences, self.slots.limit)

    def _window(self) -> float:
        """Prompt tokens that may be on their way into the engine: as many as it computes within the objective."""
        controller = self.controller
        if controller is None or controller.ttft.objective is None or not self.forecast.prefill_rate:
            return self._prefill_window
        return min(self._prefill_window, self.forecast.prefill_rate * controller.ttft.objective)

    def _dispatch(self) -> None:
        """Let in whoever's turn it is, as far as there is room."""
        delay = self._batching.hold(self.queue, self.slots, self._now())
        self._set_alarm(delay)
        if delay:
            return
        while (ticket := self.queue.peek(self._passed_over)) is not None:
            if not self._has_slots(int(ticket.load.sequences)):
                return  # a large request waits for all it needs: letting others by would starve it
            self.queue.take(ticket)
            if not ticket.granted.done():
                ticket.granted.set_result(self._grant(ticket))

    def _set_alarm(self, delay: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(delay, self._dispatch) if delay else None

    def _grant(self, ticket: Ticket) -> Permit:
        now, sequences = self._now(), int(ticket.load.sequences)
        slots = min(sequences, self.slots.limit)
        permit = Permit(slots, sequences, ticket.request.prompt_tokens, now, partial(self._freed, ticket.caller))
        if not self.slots.in_use:
            self.busy_since_ns = monotonic_ns()
        self.slots.in_use += slots
        self.shares.take(ticket.caller, slots)
        self._prefills.begin(permit, now)
        self.forecast.waited(ticket.foreseen, now - ticket.arrived)
        return permit

    def _freed(self, caller: str, permit: Permit, slots: int) -> None:
        self.slots.in_use -= slots
        self.shares.give(caller, slots)
        if not permit.held:
            self._prefills.end(permit)
        for _ in range(slots):
            self.forecast.held(self._now() - permit.granted_at)
        self._dispatch()

    async def _granted(self, ticket: Ticket) -> Permit:
        try:
            if not ticket.granted.done():
                until = min(ticket.deadline, ticket.arrived + self.max_wait)
                await asyncio.wait((ticket.granted,), timeout=until - self._now())
            if not ticket.granted.done():
                raise self._overdue(ticket)
            return ticket.granted.result()
        except BaseException:
            self._leave(ticket)
            raise

    def _overdue(self, ticket: Ticket) -> ServeError:
        self.queue.remove(ticket)
        in_vain = ticket.arrived + self.max_wait < ticket.deadline  # not by the clock: timers are rounded
        self.forecast.waited(ticket.foreseen, self._now() - ticket.arrived, in_vain=in_vain)
        if not in_vain:
            return RequestTimeout()
        foreseen = self._foreseen(ticket.request.caller, ticket.tokens, int(ticket.load.sequences))
        return self._overloaded("max_wait", foreseen, max_wait_s=self.max_wait)

    def _leave(self, ticket: Ticket) -> None:
        """The wait has ended otherwise than by a grant, or nobody is there to take the grant."""
        self.queue.remove(ticket)
        granted = ticket.granted
        if granted.done() and not granted.cancelled() and granted.exception() is None:
            granted.result().release_all()
        self._dispatch()

    async def _until_returned(self, permit: Permit) -> None:
        permit.close()
        try:
            if permit.held:
                async with asyncio.timeout(RELEASE_DEADLINE_S):
                    await permit.returned.wait()
        except TimeoutError:
            _log.error("abort_not_confirmed", slots=permit.held)
        finally:
            permit.release_all()
