"""Responses that outlive the call that asked for them, and the readers that come and go."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from server.api.errors import envelope
from server.api.responses_shape import Writer
from server.api.services import Services
from server.errors import PositionEvicted, ResponseCancelled
from server.request import RequestState
from server.streaming.event_log import EventLog
from server.streaming.replay import EventLogResponse
from server.streaming.sse import named_event
from server.streaming.stream import Stream


class BackgroundRun:
    """A response's stream, which writes into a log. `on_end` is called once, with the final response object."""

    def __init__(self, writer: Writer, log_bytes: int, on_end: Callable[[dict[str, Any]], None]) -> None:
        self.log = EventLog(log_bytes, on_close=self._close)
        self._writer = writer
        self._on_end: Callable[[dict[str, Any]], None] | None = on_end
        self._stream: Stream | None = None

    def attach(self, stream: Stream) -> None:
        """`stream` is about to start."""
        self._stream = stream
        stream.headers_left = True  # its failure is an event whoever reads
        stream.deliver(self._writer.queued())

    async def admitted(self) -> None:
        """Raises what turned the stream away at once. One that waits for its turn has been taken."""
        stream = self._stream
        if stream is None:
            return
        await stream.entered.wait()
        if stream.error is not None:
            raise stream.error

    def now(self) -> dict[str, Any]:
        waiting = self._stream is None or self._stream.state is RequestState.WAITING
        return self._writer.now("queued" if waiting else "in_progress")

    def cancel(self) -> None:
        """Harmless after the end."""
        if self._stream is not None:
            self._stream.fail(ResponseCancelled())

    def _close(self) -> None:
        on_end, self._on_end, self._stream = self._on_end, None, None
        if on_end is not None:
            on_end(self._writer.final or self._writer.now("failed"))  # the latter where no end could be encoded


def read_log(request: Request, site: Services, log: EventLog, starting_after: int | None = None) -> Response:
    """Attach the client to `log`. A browser's EventSource comes back with the number of the last event it saw."""
    numbered = "text/event-stream" in request.headers.get("accept", "")
    last_seen = _number(request.headers.get("last-event-id"))
    position = max((seen + 1 for seen in (last_seen, starting_after) if seen is not None), default=0)
    if last_seen is not None and log.closed and position >= log.next:
        return Response(status_code=204)  # keeps an EventSource from coming back
    if position < log.first:
        raise PositionEvicted(position, log.first)
    http = site.settings.http
    return EventLogResponse(
        log, position, numbered=numbered, evicted=_evicted, send_timeout=http.send_timeout, keepalive=http.keepalive
    )


def _number(text: str | None) -> int | None:
    """What isn't a number of ours is no position."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _evicted(error: PositionEvicted) -> bytes:
    """The last event of a reader that fell too far behind while reading."""
    told = envelope(error)["error"]
    flat = {name: told[name] for name in ("code", "message", "param")}
    return named_event("error", {"type": "error", "sequence_number": error.position, **flat, "error": told})
