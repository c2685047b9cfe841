"""READ FIRST: the path of one request.

    client ─ receive ─ validate ─ tokenize ─ admit ─┐                                    (api, admission)
                                                    ├─ queue ─ prefill ─ decode ⟲        (engine)
    client ◂ send ◂ encode ◂ postprocess ◂ detokenize ◂ dispatch ◂ transfer ┘            (streaming)

`Pipeline.serve` is the way in, `step` the way back. A Stream owns all state of its request.
"""

import asyncio
from functools import partial

import structlog

from server.admission.permits import Permits
from server.engine.protocol import Engine
from server.errors import InternalError, RequestTimeout, ServeError, ShuttingDown
from server.request import TokenDelta
from server.stages import Stage
from server.streaming.choice import Choice
from server.streaming.stream import Stream

_log = structlog.get_logger(__name__)


class Pipeline:
    """Carries streams through admission and the engine. `request_timeout` in seconds bounds queue and generation."""

    def __init__(self, engine: Engine, permits: Permits, *, request_timeout: float) -> None:
        self.engine = engine
        self.permits = permits
        self._request_timeout = request_timeout
        self._tasks: dict[asyncio.Task[None], Stream] = {}

    def start(self, stream: Stream) -> None:
        """Serve `stream` in a task of its own: the stream may outlive the call that brought it."""
        task = asyncio.create_task(self._serve_and_report(stream), name=f"serve-{stream.request.id}")
        self._tasks[task] = stream
        task.add_done_callback(self._tasks.pop)

    async def serve(self, stream: Stream) -> None:
        """Permit → submit → until the last delta; whatever happens, the engine lets go and the permit goes back."""
        with self.permits.acquire(len(stream.choices)):
            stream.ledger.clock.lap(Stage.ADMIT)
            try:
                for choice in stream.choices:
                    handle = self.engine.submit(choice.sequence, partial(step, stream, choice))
                    choice.abort = handle.abort
                async with asyncio.timeout(self._request_timeout):
                    await stream.finished.wait()
            finally:
                for choice in stream.choices:
                    choice.let_go()

    def fail_all(self, error: ServeError) -> None:
        """End every running stream with `error`."""
        for stream in tuple(self._tasks.values()):
            stream.fail(error)

    async def close(self) -> None:
        """End what still runs and wait for its tasks."""
        self.fail_all(ShuttingDown())
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=5)

    async def _serve_and_report(self, stream: Stream) -> None:
        try:
            await self.serve(stream)
        except ServeError as error:
            stream.fail(error)
        except TimeoutError:
            stream.fail(RequestTimeout())
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
    events = stream.encode(choice, parts)
    meter.lap(Stage.ENCODE)
    stream.deliver(events)
    stream.delivered(choice, parts, meter.lap(Stage.SEND))
