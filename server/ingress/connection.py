"""What a request's transport offers beside ASGI."""

from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Connection:
    """What the transport knows of one request, and the synchronous way out. Stamps are monotonic ns."""

    __slots__ = ("_cycle", "_on_lost", "completed_ns", "received_ns")

    def __init__(self, received_ns: int, cycle: RequestResponseCycle) -> None:
        self.received_ns = received_ns
        self.completed_ns = 0  # when the last byte of the body came; 0 until then
        self._cycle = cycle
        self._on_lost: Callable[[], None] | None = None

    def when_lost(self, act: Callable[[], None] | None) -> None:
        """Call `act`, and no longer what was given before, once the client goes away; at once if it has gone."""
        self._on_lost = act
        if act is not None and self._cycle.disconnected:
            act()

    def lost(self) -> None:
        """The client went away before its answer was out."""
        if self._on_lost is not None:
            self._on_lost()

    def try_write(self, body: bytes) -> bool:
        """Hand a part of a started, chunked response to the transport; False, taking nothing, if paused or closed."""
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
            return False
        if cycle.transport.is_closing():
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    def abort(self) -> None:
        """Close at once, dropping what the client has not read."""
        self._cycle.transport.abort()
