"""The least that a front end in Python can cost: a recorded stream, written again at the pace of an engine.

    python -m bench.frontend_floor asgi|protocol --port P --streams RECORDING [--step-ms MS]

`asgi` is a bare ASGI app under uvicorn with uvloop and httptools, `protocol` a bare protocol of uvloop that frames the
chunks itself. Nothing is parsed, tokenized or encoded; every POST gets the recorded stream, every GET a model's name.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, cast

import uvicorn
import uvloop

from bench.arms import HOST
from bench.frontend_recording import Recording

MODELS = b'{"data":[{"id":"floor"}]}'
JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Steps:
    """A pretended engine with one batch: whoever waits is called at its next step, all at the same one."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._due = 0.0
        self._waiting: list[Callable[[], None]] = []

    def at_next(self, call: Callable[[], None]) -> None:
        if not self._waiting:
            self._start()
        self._waiting.append(call)

    async def next(self) -> None:
        step: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not step.done():  # whoever waited may have been cancelled
                step.set_result(None)

        self.at_next(end)
        await step

    def _start(self) -> None:
        """A step follows on the last, or begins now when the engine was idle or is behind."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._due = (self._due if now - self._due < self._step_s else now) + self._step_s
        loop.call_at(self._due, self._end)

    def _end(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


class AsgiFloor:
    def __init__(self, recording: Recording, steps: Steps) -> None:
        self._recording = recording
        self._steps = steps

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await send(_start(JSON, (b"content-length", str(len(MODELS)).encode())))
            await send({"type": "http.response.body", "body": MODELS})
            return
        while (await receive()).get("more_body"):
            pass
        await send(_start(EVENTS))
        for writes in self._recording.steps:
            await self._steps.next()
            for write in writes:
                await send({"type": "http.response.body", "body": write, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _start(content_type: str, *headers: tuple[bytes, bytes]) -> Message:
    """Without a content length uvicorn sends the body in chunks."""
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", content_type.encode()), *headers],
    }


class ProtocolFloor(asyncio.Protocol):
    """HTTP/1.1 as far as this bench's client speaks it: one request at a time, bodies with a content length."""

    def __init__(self, steps: Steps, writes: Sequence[bytes]) -> None:
        """`writes` has the bytes of each step, framed."""
        self._steps = steps
        self._writes = writes
        self._request = b""
        self._left: Iterator[bytes] = iter(())
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, complete, body = self._request.partition(b"\r\n\r\n")
        if not complete or len(body) < _content_length(head):
            return
        self._request = b""
        if head.startswith(b"GET"):
            self._answer_models()
        else:
            self._answer_stream()

    def _answer_models(self) -> None:
        if self._transport is not None:
            self._transport.write(_head(JSON, f"content-length: {len(MODELS)}", "connection: close") + MODELS)
            self._transport.close()

    def _answer_stream(self) -> None:
        if self._transport is not None:
            self._transport.write(_head(EVENTS, "transfer-encoding: chunked"))
        self._left = iter(self._writes)
        self._steps.at_next(self._write_next)

    def _write_next(self) -> None:
        data = next(self._left, None)
        if data is None or self._transport is None:
            return
        self._transport.write(data)
        self._steps.at_next(self._write_next)


def _head(content_type: str, *fields: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", f"content-type: {content_type}", *fields, "", ""]).encode()


def _content_length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.split(maxsplit=1)[0]) if found else 0


def framed(recording: Recording) -> list[bytes]:
    """The bytes of each step as chunks, the end of the body with the last."""
    steps = [b"".join(b"%x\r\n%b\r\n" % (len(write), write) for write in writes) for writes in recording.steps]
    return [*steps[:-1], steps[-1] + b"0\r\n\r\n"]


def serve_asgi(recording: Recording, steps: Steps, port: int) -> None:
    app = cast(Any, AsgiFloor(recording, steps))
    uvicorn.run(app, host=HOST, port=port, loop="uvloop", http="httptools", lifespan="off", access_log=False)


def serve_protocol(recording: Recording, steps: Steps, port: int) -> None:
    writes = framed(recording)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: ProtocolFloor(steps, writes), HOST, port)
        await server.serve_forever()

    uvloop.run(serve())


KINDS = {"asgi": serve_asgi, "protocol": serve_protocol}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.frontend_floor")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=Path, required=True, help="the recording that every stream replays")
    parser.add_argument("--step-ms", type=float, default=20.0)
    args = parser.parse_args()
    KINDS[args.kind](Recording.load(args.streams), Steps(args.step_ms / 1e3), args.port)


if __name__ == "__main__":
    main()
