"""READ FIRST: the path of one request.

    client ─ receive ─ validate ─ tokenize ─ admit ─┐                                    (api, admission)
                                                    ├─ queue ─ prefill ─ decode ⟲        (engine)
    client ◂ send ◂ encode ◂ postprocess ◂ detokenize ◂ dispatch ◂ transfer ┘            (streaming)

`Pipeline.serve` is the way in, `step` the way back. A Stream owns all state of its request.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import structlog

from server.admission.admission import Admission
from server.admission.permits import Permit
from server.config import Settings
from server.engine.protocol import Engine
from server.errors import InternalError, RequestTimeout, ServeError, ShuttingDown, Stalled
from server.request import TokenDelta, reservation
from server.stages import Stage
from server.streaming.choice import Choice
from server.streaming.stream import Stream

_log = structlog.get_logger(__name__)


class Pipeline:
    """Carries streams through admission and the engine, within the time each has."""

    def __init__(self, engine: Engine, admission: Admission, settings: Settings) -> None:
        self.engine = engine
        self.admission = admission
        self._timeout = settings.admission.request_timeout
        self._stall_timeout = settings.admission.stall_timeout
        self._reserve_tokens = settings.limits.reserve_tokens
        self._tasks: dict[asyncio.Task[None], Stream] = {}

    def start(self, stream: Stream) -> None:
        """Serve `stream` in a task of its own: the stream may outlive the call that brought it."""
        task = asyncio.create_task(self._serve_and_report(stream), name=f"serve-{stream.request.id}")
        self._tasks[task] = stream
        task.add_done_callback(self._tasks.pop)

    async def serve(self, stream: Stream) -> None:
        """Quota → queue → permit → submit → until the last delta; whatever happens, each is given back."""
        timeout = stream.request.timeout or self._timeout
        deadline = asyncio.get_running_loop().time() + timeout
        async with self._paid_for(stream):
            ticket = self.admission.apply(stream.request, timeout)
            stream.queue(ticket.withdraw)
            async with self.admission.permit(ticket) as permit:
                stream.ledger.clock.lap(Stage.ADMIT)
                try:
                    if not stream.finished.is_set():  # its client may have gone just as its turn came
                        self._submit(stream, permit)
                    await self._until_finished(stream, deadline)
                except ServeError as error:
                    stream.fail(error)
                finally:
                    for choice in stream.choices:
                        choice.let_go()
        self._learn_from(stream)

    def fail_all(self, error: ServeError) -> None:
        """End every running stream with `error`."""
        for stream in tuple(self._tasks.values()):
            stream.fail(error)

    async def close(self) -> None:
        """End what still runs and wait for its tasks."""
        self.fail_all(ShuttingDown())
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=5)

    @asynccontextmanager
    async def _paid_for(self, stream: Stream) -> AsyncIterator[None]:
        """What the request may use at most is set aside of its key's tokens; in the end it pays for what it used."""
        request = stream.request
        reserved = reservation(request, self._reserve_tokens)
        await request.caller.reserve(reserved)
        try:
            yield
        finally:
            await request.caller.settle(reserved, stream.tokens_used)

    def _submit(self, stream: Stream, permit: Permit) -> None:
        for choice in stream.choices:
            handle = self.engine.submit(choice.sequence, partial(step, stream, choice), permit.released)
            permit.submitted()
            choice.abort = handle.abort
        stream.on_first = partial(self.admission.prefilled, permit)  # from here on its caller pays; no delta came yet

    async def _until_finished(self, stream: Stream, deadline: float) -> None:
        """Raises RequestTimeout, or Stalled when no token comes for too long."""
        loop = asyncio.get_running_loop()
        produced, since = 0, loop.time()
        while True:
            try:
                async with asyncio.timeout_at(min(deadline, loop.time() + self._stall_timeout / 4)):
                    await stream.finished.wait()
                    return
            except TimeoutError:
                now = loop.time()
            if now >= deadline:
                raise RequestTimeout
            if stream.output_tokens != produced:
                produced, since = stream.output_tokens, now
            elif now - since >= self._stall_timeout:
                raise Stalled

    def _learn_from(self, stream: Stream) -> None:
        if stream.error is None:
            for choice in stream.choices:
                self.admission.forecast.answered(stream.request.params.max_tokens, choice.output_tokens)
        for tpot_ns in stream.ledger.tpot_ns:
            self.admission.took_per_token(tpot_ns / 1e9)

    async def _serve_and_report(self, stream: Stream) -> None:
        try:
            await self.serve(stream)
        except ServeError as error:  # turned away
            stream.ledger.clock.lap(Stage.ADMIT)
            stream.fail(error)
        except Exception:
            _log.exception("serve_failed", request=stream.request.id)
            stream.fail(InternalError())
        except BaseException:
            stream.fail(InternalError())
            raise


def step(stream: Stream, choice: Choice, delta: TokenDelta) -> None:
    """One engine step's tokens of one choice, all the way to the socket. Never awaits."""
    if stream.finished.is_set() or choice.finish_reason is not None:
        return
    if delta.error is not None:
        stream.fail(delta.error)
        return
    try:
        _carry(stream, choice, delta)
    except ServeError as error:  # the reader is too far behind, or the answer cannot go on
        stream.fail(error)
    except BaseException:  # whatever state the choice is in: the request must not stay open
        stream.fail(InternalError())
        raise


def _carry(stream: Stream, choice: Choice, delta: TokenDelta) -> None:
    meter = stream.meter
    meter.arrive(delta)
    pieces = choice.detokenize(delta)
    meter.lap(Stage.DETOKENIZE)
    parts = choice.postprocess(pieces, delta)
    meter.lap(Stage.POSTPROCESS)
    if stream.outbox.full and choice.finish_reason is None:
        stream.hold(choice, parts)
        return
    events = stream.encode(choice, parts)
    meter.lap(Stage.ENCODE)
    stream.deliver(events)
    stream.delivered(choice, parts, meter.lap(Stage.SEND))
