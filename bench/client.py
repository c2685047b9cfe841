"""A streaming client that costs little: one POST per connection, one stamp per socket read.

`ResponseReader` has no sockets; `stream_request` puts one behind it.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

import orjson

from bench.sample import NO_CHOICE, RequestSample, StreamEvent
from bench.wire import BodyDecoder, HeadReader, SseParser, UntilCloseDecoder, WireError, request_bytes

GENERATED_FIELDS = ("content", "reasoning", "reasoning_content", "tool_calls", "function_call", "refusal")
DETAIL_CHARS = 300
ROUNDING_S = 0.0005


class ResponseReader:
    """Turns a response's bytes into the events of a sample; `finished` once nothing more can come."""

    def __init__(self, sample: RequestSample) -> None:
        self.sample = sample
        self.finished = False
        self._head = HeadReader()
        self._decoder: BodyDecoder | None = None
        self._sse: SseParser | None = None
        self._texts: dict[int, list[str]] = {}
        self._body: list[bytes] = []

    def feed(self, data: bytes, stamp_ns: int) -> bool:
        """Takes what one socket read brought; every event it completes gets that read's stamp. True when finished."""
        if self.finished:
            return True
        try:
            self._feed(data, stamp_ns)
        except WireError as error:
            self.abandon("protocol", str(error))
        return self.finished

    def _feed(self, data: bytes, stamp_ns: int) -> None:
        if self._decoder is None:
            data = self._head.feed(data)
            self._take_head(stamp_ns)
        if self._decoder is None:
            return
        body = self._decoder.feed(data)
        if self._sse is None:
            self._body.append(body)
        else:
            for payload in self._sse.feed(body):
                self._take_event(payload, stamp_ns)
        if self._decoder.done:
            self._end_of_body(stamp_ns)

    def eof(self, stamp_ns: int) -> None:
        """The connection is gone."""
        if not self.finished:
            self._end_of_body(stamp_ns)

    def _take_head(self, stamp_ns: int) -> None:
        head = self._head.head
        if head is None:
            return
        self.sample.headers_ns = stamp_ns
        self.sample.status = head.status
        self._decoder = head.body_decoder()
        if head.is_event_stream:
            self._sse = SseParser()

    def _take_event(self, payload: bytes, stamp_ns: int) -> None:
        if payload == b"[DONE]":
            self.sample.done_ns = stamp_ns
            return
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError:
            event = None
        if isinstance(event, dict):
            self.take(event, stamp_ns)
        else:
            self.fail("protocol", f"not a JSON object: {payload[:40]!r}")

    def take(self, event: dict[str, Any], stamp_ns: int) -> None:
        """Puts an event into the sample; a protocol without `choices` has a reader that overrides this."""
        choices = event.get("choices")
        if choices:
            for choice in choices:
                self._take_choice(choice, stamp_ns)
        else:
            self.sample.events.append(StreamEvent(stamp_ns, NO_CHOICE, False, None))
        if usage := event.get("usage"):
            self.sample.prompt_tokens = usage.get("prompt_tokens")
            self.sample.output_tokens = usage.get("completion_tokens")
        if timings := event.get("timings"):
            self.sample.timings = timings
        if error := event.get("error"):
            self.fail("error event", orjson.dumps(error).decode())

    def _take_choice(self, choice: dict[str, Any], stamp_ns: int) -> None:
        index = choice.get("index", 0)
        delta = choice.get("delta")
        if delta is None:
            text = choice.get("text")
            generated = bool(text)
        else:
            text = delta.get("content")
            generated = bool(text) or any(delta.get(name) for name in GENERATED_FIELDS)
        self.sample.events.append(StreamEvent(stamp_ns, index, generated, choice.get("finish_reason")))
        if text:
            self._texts.setdefault(index, []).append(text)

    def _end_of_body(self, stamp_ns: int) -> None:
        if self._sse is not None:
            self._end_of_stream()
        elif self._decoder is not None and (self._decoder.done or isinstance(self._decoder, UntilCloseDecoder)):
            self._end_of_document(stamp_ns)
        else:
            self.fail("cut", "the connection closed before the response was complete")
        self._finish()

    def _end_of_stream(self) -> None:
        if self.sample.done_ns is None:
            self.fail("cut", "the stream ended without [DONE]")

    def _end_of_document(self, stamp_ns: int) -> None:
        self.sample.body = b"".join(self._body)
        if self.sample.status != 200:
            self.fail(f"http {self.sample.status}", self.sample.body.decode(errors="replace"))
            return
        self.sample.done_ns = stamp_ns

    def fail(self, error: str, detail: str) -> None:
        """The response goes on being read."""
        # The first cause counts: what follows it (a cut after an error event) is its consequence.
        if self.sample.error is None:
            self.sample.error = error
            self.sample.detail = detail[:DETAIL_CHARS]

    def _finish(self) -> None:
        self.finished = True
        self.sample.texts = {index: "".join(parts) for index, parts in self._texts.items()}

    def abandon(self, error: str, detail: str) -> None:
        """Ends the sample from the client's side."""
        self.fail(error, detail)
        self._finish()


class _Connection(asyncio.Protocol):
    def __init__(self, reader: ResponseReader) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reader = reader
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> None:
        self.reader.sample.sent_ns = time.monotonic_ns()
        if self._transport is not None:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.reader.feed(data, time.monotonic_ns()):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reader.eof(time.monotonic_ns())
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def stream_request(
    host: str,
    port: int,
    path: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    deadline_s: float = 600.0,
    scheduled_ns: int | None = None,
    sample: RequestSample | None = None,
    reader: type[ResponseReader] = ResponseReader,
) -> RequestSample:
    """Sends one request and reads its response to the end. Failures are in the sample, not raised.

    Connecting is not part of any latency: `sent_ns` is taken when the request is written, which is not before it is
    due. Who calls ahead of that time has the connection ready by then. The deadline counts from then on, too.
    A caller that wants to watch the sample grow, or to keep it when it cancels, brings its own.
    """
    sample = sample or RequestSample(scheduled_ns=scheduled_ns)
    sample.sent_ns = time.monotonic_ns()
    connection = _Connection(reader(sample))
    request = request_bytes(host, port, path, body, headers or {})
    try:
        async with asyncio.timeout(deadline_s + seconds_until(sample.scheduled_ns)):
            await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
            await sleep_until(sample.scheduled_ns)
            connection.send(request)
            await connection.closed
    except TimeoutError:
        connection.reader.abandon("deadline", f"no complete response within {deadline_s} s")
    except OSError as error:
        connection.reader.abandon("connect", str(error))
    finally:
        connection.close()
    return sample


def seconds_until(due_ns: int | None) -> float:
    return 0.0 if due_ns is None else max(due_ns - time.monotonic_ns(), 0) / 1e9


async def sleep_until(due_ns: int | None) -> None:
    """Returns at once for what is overdue, and never too early."""
    # uvloop rounds timers to milliseconds: half of one less, and none is late. The rest is spent in turns of the loop.
    while left_s := seconds_until(due_ns):  # noqa: ASYNC110
        await asyncio.sleep(max(left_s - ROUNDING_S, 0.0))
