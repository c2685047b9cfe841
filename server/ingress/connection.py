"""What a request's transport offers beside ASGI."""

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Connection:
    """What the transport knows of one request, and the synchronous way out. Stamps are monotonic ns."""

    __slots__ = ("_cycle", "completed_ns", "received_ns")

    def __init__(self, received_ns: int, cycle: RequestResponseCycle) -> None:
        self.received_ns = received_ns
        self.completed_ns = 0  # when the last byte of the body came; 0 until then
        self._cycle = cycle

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
