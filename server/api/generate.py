"""What every generating endpoint does once its request has become a GenerationRequest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import Any, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.api.services import ledger_of, services
from server.api.terms import DEGRADED
from server.ledger import Ledger
from server.request import GenerationRequest
from server.stages import Stage
from server.streaming.response import EventStreamResponse
from server.streaming.sse import EventEncoder
from server.streaming.stream import Sink, Stream


class Shape(Protocol):
    """How one protocol answers."""

    def encoder(self) -> EventEncoder: ...

    def body(self, stream: Stream) -> dict[str, Any]:
        """The answer of a finished stream, not streamed."""
        ...


async def generate(request: Request, generation: GenerationRequest, shape: Shape, *, timings: bool) -> Response:
    """Run `generation` and answer it, streamed or not. Raises ServeError while no byte has left."""
    stream = start(request, generation, shape.encoder() if generation.streamed else None, timings=timings)
    if generation.streamed:
        return await streamed(request, stream)
    return await collected(request, stream, lambda: shape.body(stream), timings=timings)


def start(
    request: Request,
    generation: GenerationRequest,
    encoder: EventEncoder | None,
    *,
    timings: bool,
    sink: Sink | None = None,
) -> Stream:
    """Hand `generation` to the pipeline; its task begins at the next await."""
    site, ledger = services(request), ledger_of(request)
    ledger.streamed = generation.streamed
    ledger.prompt_tokens = generation.prompt_tokens
    stream = Stream(
        generation,
        site.engine.model.tokenizer.backend,
        ledger,
        site.metrics.meters,
        encoder=encoder,
        include_timings=timings,
        buffer_bytes=site.settings.http.stream_buffer_bytes,
        sink=sink,
    )
    ledger.choices = len(stream.choices)
    site.pipeline.start(stream)
    return stream


async def streamed(request: Request, stream: Stream) -> Response:
    """Headers leave at the first event or after the keep-alive time; a failure before that is an HTTP status."""
    http = services(request).settings.http
    async with _cancelled_by_disconnect(request, stream):
        try:
            async with asyncio.timeout(http.keepalive or None):
                await stream.started.wait()
        except TimeoutError:
            pass
    if stream.error is not None and not stream.has_output:
        raise stream.error
    stream.headers_left = True
    response = EventStreamResponse(stream, send_timeout=http.send_timeout, keepalive=http.keepalive)
    response.headers.update(_told(stream.request))
    return response


async def collected(
    request: Request, stream: Stream, body_of: Callable[[], dict[str, Any]], *, timings: bool
) -> Response:
    """One body, which `body_of` makes at the end."""
    async with _cancelled_by_disconnect(request, stream):
        await stream.finished.wait()
    if stream.error is not None:
        raise stream.error
    ledger = stream.ledger
    ledger.clock.skip(monotonic_ns())
    headers = _told(stream.request)
    body = body_of()
    if timings:
        body["timings"] = stream.ledger_report()
        headers["Server-Timing"] = ledger.server_timing(ledger.clock.here())
    response = MeasuredResponse(orjson.dumps(body), ledger, headers)
    ledger.clock.lap(Stage.ENCODE)
    return response


def _told(generation: GenerationRequest) -> dict[str, str]:
    return {DEGRADED: f"max_tokens={generation.params.max_tokens}"} if generation.shortened else {}


class MeasuredResponse(Response):
    """A JSON answer whose sending is a stage of its ledger."""

    media_type = "application/json"

    def __init__(self, content: bytes, ledger: Ledger, headers: dict[str, str]) -> None:
        super().__init__(content, headers=headers)
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)
        self._ledger.clock.lap(Stage.SEND)


@asynccontextmanager
async def _cancelled_by_disconnect(request: Request, stream: Stream) -> AsyncIterator[None]:
    """Cancel `stream` when the client goes away, or when this wait itself is cancelled."""
    connection = request.scope.get("extensions", {}).get("streamgauge")
    watcher = None
    if connection is None:
        watcher = asyncio.create_task(_watch(request, stream), name="disconnect-watch")
    else:
        connection.when_lost(stream.cancel)
    try:
        yield
    except BaseException:
        stream.cancel()
        raise
    finally:
        if watcher is None:
            connection.when_lost(None)
        else:
            watcher.cancel()
            await asyncio.wait((watcher,))


async def _watch(request: Request, stream: Stream) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stream.cancel()
