"""HTTP/1.1 and SSE without sockets: bytes in, event payloads out, the same however the bytes were cut."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache

MAX_HEAD_BYTES = 64 * 1024
MAX_SIZE_LINE_BYTES = 4096


class WireError(Exception):
    """The server's bytes aren't HTTP/1.1 as this client understands it."""


class SseParser:
    """Splits a byte stream into events; an event's payload is its `data` lines joined by LF."""

    def __init__(self) -> None:
        self._pending = b""
        self._cr = False  # a CR came last: it may be half of a CRLF

    def feed(self, data: bytes) -> list[bytes]:
        # By far the most reads bring one event of one line.
        one_line = data.startswith(b"data: ") and data.endswith(b"\n\n") and data.find(b"\n") == len(data) - 2
        if one_line and not self._pending and not self._cr and b"\r" not in data:
            return [data[6:-2]]
        return self._feed(data)

    def _feed(self, data: bytes) -> list[bytes]:
        if self._cr:
            data = b"\r" + data
        self._cr = data.endswith(b"\r")
        # What is pending has been through this already: a CR that it still has is no half of anything.
        buffer = self._pending + data.removesuffix(b"\r").replace(b"\r\n", b"\n")
        *events, self._pending = buffer.split(b"\n\n")
        return [payload for event in events if (payload := _payload(event)) is not None]


def _payload(event: bytes) -> bytes | None:
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


class Chunk(Enum):
    """What the next byte of a chunked body belongs to; every transition is in ChunkedDecoder."""

    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()
    DONE = auto()


_SIZE = Chunk.SIZE


class ChunkedDecoder:
    """Transfer-Encoding: chunked. `done` after the last chunk and its trailers."""

    def __init__(self) -> None:
        self._state = Chunk.SIZE
        self._pending = b""
        self._left = 0

    @property
    def done(self) -> bool:
        return self._state is Chunk.DONE

    def feed(self, data: bytes) -> bytes:
        # By far the most reads bring one chunk.
        if self._state is _SIZE and not self._pending:
            line_end = data.find(b"\r\n")
            if line_end > 0 and (size := _chunk_size(data[:line_end])):
                end = line_end + 2 + size
                if len(data) == end + 2 and data.endswith(b"\r\n"):
                    return data[line_end + 2 : end]
        return self._feed(data)

    def _feed(self, data: bytes) -> bytes:
        buffer = self._pending + data if self._pending else data
        body: list[bytes] = []
        start, end = 0, len(buffer)
        while start < end and self._state is not Chunk.DONE:
            if self._state is Chunk.DATA:
                taken = min(self._left, end - start)
                body.append(buffer[start : start + taken])
                start += taken
                self._left -= taken
                if not self._left:
                    self._state = Chunk.DATA_END
                continue
            line_end = buffer.find(b"\r\n", start)
            if line_end < 0:
                self._check_partial_line(buffer, start)
                break
            self._take_line(buffer[start:line_end])
            start = line_end + 2
        self._pending = b"" if self.done else buffer[start:]
        return b"".join(body)

    def _check_partial_line(self, buffer: bytes, start: int) -> None:
        if len(buffer) - start > MAX_SIZE_LINE_BYTES:
            raise WireError("a chunk-size line without end")
        if self._state is Chunk.DATA_END and buffer[start:] != b"\r":
            raise WireError("a chunk longer than its size")

    def _take_line(self, line: bytes) -> None:
        if self._state is Chunk.SIZE:
            self._left = _chunk_size(line)
            self._state = Chunk.DATA if self._left else Chunk.TRAILER
        elif self._state is Chunk.DATA_END:
            if line:
                raise WireError("a chunk longer than its size")
            self._state = Chunk.SIZE
        elif not line:
            self._state = Chunk.DONE


@lru_cache
def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    # int() alone would take signs, underscores and a 0x prefix as well.
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):
        raise WireError(f"not a chunk size: {line[:40]!r}")
    return int(digits, 16)


class LengthDecoder:
    """A body of known length."""

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def done(self) -> bool:
        return not self._left

    def feed(self, data: bytes) -> bytes:
        body = data[: self._left]
        self._left -= len(body)
        return body


class UntilCloseDecoder:
    """A body that ends with its connection."""

    done = False

    def feed(self, data: bytes) -> bytes:
        return data


BodyDecoder = ChunkedDecoder | LengthDecoder | UntilCloseDecoder


@dataclass(slots=True)
class Head:
    """Status line and headers, names in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_event_stream(self) -> bool:
        return self.status == 200 and self.headers.get("content-type", "").startswith("text/event-stream")

    def body_decoder(self) -> BodyDecoder:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return ChunkedDecoder()
        length = self.headers.get("content-length")
        if length is None:
            return UntilCloseDecoder()
        if not length.isdecimal():
            raise WireError(f"not a content length: {length[:40]!r}")
        return LengthDecoder(int(length))


class HeadReader:
    """Collects a response's head; `feed` answers with the bytes that follow it once it is complete."""

    def __init__(self) -> None:
        self._pending = b""
        self.head: Head | None = None

    def feed(self, data: bytes) -> bytes:
        buffer = self._pending + data
        while (end := buffer.find(b"\r\n\r\n")) >= 0:
            head = parse_head(buffer[:end])
            buffer = buffer[end + 4 :]
            if head.status >= 200:
                self.head = head
                return buffer
        if len(buffer) > MAX_HEAD_BYTES:
            raise WireError("a response head without end")
        self._pending = buffer
        return b""


def parse_head(raw: bytes) -> Head:
    status_line, *lines = raw.decode("latin-1").split("\r\n")
    version, _, rest = status_line.partition(" ")
    status = rest.partition(" ")[0]
    if not version.startswith("HTTP/1.") or not status.isdecimal():
        raise WireError(f"not a status line: {status_line[:40]!r}")
    pairs = (line.partition(":") for line in lines)
    return Head(int(status), {name.strip().lower(): value.strip() for name, _, value in pairs})


def request_bytes(host: str, port: int, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    fields = {
        "Host": f"{host}:{port}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        **headers,
        "Content-Length": str(len(body)),
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
