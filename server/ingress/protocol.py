"""Our uvicorn HTTP protocol: it stamps when a request arrives and lets a stream write without a coroutine.

A `Connection` lies in `scope["extensions"]["streamgauge"]` of each request.
"""

from time import monotonic_ns

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


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


class MeasuredProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with a `Connection` per request."""

    _data_ns = 0
    _begun_ns = 0
    _connection: Connection | None = None

    def data_received(self, data: bytes) -> None:
        self._data_ns = monotonic_ns()
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun_ns = self._data_ns

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._connection = Connection(self._begun_ns, self.cycle)
        self.scope["extensions"] = {"streamgauge": self._connection}  # type: ignore[dict-item]

    def on_message_complete(self) -> None:
        if self._connection is not None:
            self._connection.completed_ns = self._data_ns
        super().on_message_complete()
