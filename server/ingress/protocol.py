"""Our uvicorn HTTP protocol: it stamps when a request arrives, lets a stream write without a coroutine, and bounds what
a connection may cost: uvicorn with httptools limits neither headers nor their time, and reads refused bodies for ever.

A `Connection` lies in `scope["extensions"]["streamgauge"]` of each request.
"""

import asyncio
import re
from enum import IntEnum
from time import monotonic_ns
from typing import Any, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from server.config import HttpSettings
from server.ingress.connection import Connection
from server.ingress.refusal import (
    BAD_HOST,
    BODY_TOO_SLOW,
    HEAD_TOO_LARGE,
    HEAD_TOO_SLOW,
    MALFORMED,
    TOO_MANY,
    UPGRADE,
    Refusal,
    Refused,
)
from server.ingress.sweeper import Sweeper
from server.ingress.wire import Wire, bound_send_buffers, unchunked

DEFAULTS = HttpSettings()
LINGER_S = 2.0  # for a refused client to read its answer while it may still be sending
MAX_PIPELINED = 32  # requests that wait for the answers before theirs
WHOLE_BODY_TIMEOUTS = 10  # a body may take that many times the longest silence within it
HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")  # RFC 3986's host and port, RFC 9110 §7.2
_ANSWERED: Any = {}  # in place of a scope


class Phase(IntEnum):
    """What the bytes that come in belong to."""

    BETWEEN = 0  # nothing of a request has come
    HEAD = 1
    BODY = 2
    UNREAD = 3  # the body of a request that has been answered without it: thrown away, then the next may follow
    DEAF = 4  # nothing: the connection ends with the last answer that is under way
    CLOSING = 5  # nothing: our side has ended, the client may still read


BETWEEN, HEAD, BODY, UNREAD, DEAF, CLOSING = Phase  # each request passes here; an enum's own look-up is slow


class MeasuredProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with a `Connection` per request, and bounds. All changes of `_phase` are here."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        http: HttpSettings = DEFAULTS,
        sweeper: Sweeper | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._http = http
        self._sweeper = sweeper
        self._socket: asyncio.Transport  # the transport itself; uvicorn works on the Wire around it

        # Input
        self._phase = BETWEEN
        self._since_ns = 0  # begin of the phase, in BODY of the silence
        self._data_ns = 0
        self._head_ns = 0
        self._body_ns = 0
        self._unclaimed = 0  # bytes of a head, or of framing and trailers since the last piece of a body
        self._discarded = 0

        # Output
        self._running: RequestResponseCycle | None = None  # `cycle` is the last request that came, this one is answered
        self._connection: Connection | None = None

    @property
    def _answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._socket = transport
        self.transport = Wire(transport, self._close)
        self._since_ns = monotonic_ns()
        bound_send_buffers(transport, self._http.send_buffer_bytes)
        if self._sweeper is not None:
            self._sweeper.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = CLOSING
        if self._sweeper is not None:
            self._sweeper.discard(self)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self._answering:  # uvicorn tells the last request only, which may wait behind this one
            self._desert()

    def data_received(self, data: bytes) -> None:
        self._data_ns = monotonic_ns()
        if self._phase >= DEAF:
            self._discard(len(data))
            return
        self._unset_keepalive_if_required()
        self._unclaimed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            fault = error.__context__
            self._refuse(fault.refusal if isinstance(fault, Refused) else MALFORMED)
        except httptools.HttpParserUpgrade:
            self._phase = DEAF  # the request is answered as if it had not asked for more
        else:
            self._after(len(data))

    def _after(self, size: int) -> None:
        """Bounds on what has not become a request yet, or belongs to none."""
        if self._phase is UNREAD:
            self._discard(size)
        elif self._phase is not BETWEEN and self._unclaimed > self._http.max_header_bytes:
            self._refuse(HEAD_TOO_LARGE)
        elif self._phase is BODY:
            self._since_ns = self._data_ns

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = HEAD
        self._head_ns = self._since_ns = self._data_ns

    def on_headers_complete(self) -> None:
        self._check_head()
        super().on_headers_complete()
        self._phase = BODY
        self._body_ns = self._data_ns
        self._unclaimed = 0
        self.headers = []  # for trailers: the application has read the others
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False
        self._connection = Connection(self._head_ns, self.cycle)
        self.scope["extensions"] = {"streamgauge": self._connection}  # type: ignore[dict-item]

    def _check_head(self) -> None:
        """Raises Refused."""
        http, headers = self._http, self.headers
        if len(headers) > http.max_headers:
            raise Refused(HEAD_TOO_LARGE)
        if self._unclaimed > http.max_header_bytes and _size(self.url, headers) > http.max_header_bytes:
            raise Refused(HEAD_TOO_LARGE)
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Refused(MALFORMED)
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and version == "1.1") or (hosts and not HOST.fullmatch(hosts[0])):
            raise Refused(BAD_HOST)
        if self.parser.should_upgrade() and _has_body(headers):  # the parser would drop it
            raise Refused(UPGRADE)
        if len(self.pipeline) >= MAX_PIPELINED:
            raise Refused(TOO_MANY)

    def on_body(self, body: bytes) -> None:
        self._unclaimed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._connection is not None:
            self._connection.completed_ns = self._data_ns
        self._phase = BETWEEN
        self._since_ns = self._data_ns
        self._unclaimed = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        if cycle.scope["http_version"] == "1.0":
            app = unchunked(app, cycle)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        assert self._running is not None
        self._running.scope = _ANSWERED  # the way back from the scope to the cycle would be garbage to collect
        if self._phase is CLOSING:
            self.server_state.total_requests += 1
            return
        if self._phase is BODY and self._running is self.cycle:
            self._phase = UNREAD
            self._discarded = 0
        if self._phase is not HEAD:
            self._since_ns = monotonic_ns()
        super().on_response_complete()

    def expire(self, now_ns: int) -> None:
        """Act on what has lasted too long, at `now_ns`, monotonic."""
        seconds = (now_ns - self._since_ns) / 1e9
        match self._phase:
            case Phase.BODY:
                self._expire_body(now_ns, seconds)
            case Phase.UNREAD if seconds > LINGER_S:
                self._linger()
            case Phase.CLOSING if seconds > LINGER_S:
                self._socket.abort()
            case _ if self._answering:
                self._since_ns = now_ns  # the client may wait, and what it sends may wait for that
            case Phase.BETWEEN if seconds > self._http.idle_timeout:
                self._socket.close()
            case Phase.HEAD if seconds > self._http.header_timeout:
                self._refuse(HEAD_TOO_SLOW)
            case Phase.DEAF if seconds > LINGER_S:
                self._socket.abort()

    def _expire_body(self, now_ns: int, silent: float) -> None:
        if self.flow.read_paused or self._running is not self.cycle or self.cycle.response_started:
            self._since_ns = now_ns  # the silence is ours, or no harm
            return
        whole = (now_ns - self._body_ns) / 1e9
        if silent > self._http.body_timeout or whole > WHOLE_BODY_TIMEOUTS * self._http.body_timeout:
            self._refuse(BODY_TOO_SLOW)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what is no proper request, unless an answer is under way: then the connection ends with that."""
        broken = self.cycle if self._phase is BODY else None
        if self._phase is UNREAD:
            self._linger()
        elif self._answering and (broken is not self._running or self.cycle.response_started):
            if broken is not None and broken is not self._running:
                self.pipeline.popleft()  # it waits behind others, and will never be whole
            last = self.pipeline[0][0] if self.pipeline else self._running
            assert last is not None
            last.keep_alive = False
            self._phase = DEAF
            self._discarded = 0
        else:
            if self._answering:
                self._desert()
            self._socket.write(bytes(refusal))
            self._linger()

    def _desert(self) -> None:
        """Let the application find its client gone."""
        assert self._running is not None
        self._running.disconnected = True
        self._running.waiting_for_100_continue = False  # uvicorn would still write that
        self._running.message_event.set()
        cast(Connection, self._running.scope["extensions"]["streamgauge"]).lost()

    def _discard(self, size: int) -> None:
        """Throw away what is not read: up to a bound, and in CLOSING for LINGER_S."""
        self._discarded += size
        if self._discarded <= self._http.max_body_bytes:
            return
        if self._phase is UNREAD:
            self._linger()
        elif self._phase is DEAF:
            self._socket.abort()

    def _close(self) -> None:
        """uvicorn's way to end a connection, after an answer or in silence."""
        if self._phase is BETWEEN or self._socket.is_closing():
            self._socket.close()
        else:
            self._linger()

    def _linger(self) -> None:
        """End our side alone: a socket closed with unread input is reset, and the client loses its answer."""
        self._phase = CLOSING
        self._since_ns = monotonic_ns()
        self.flow.resume_reading()
        if self._socket.can_write_eof():
            self._socket.write_eof()


def _size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)
