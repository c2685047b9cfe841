"""A server whose answers are a script and which knows when it wrote each event: the truth that a client is held to.

    python -m tests.support.truth_server --port 8000 --ttft-ms 30 --gap-ms 8 --events 12

GET /truth tells what it was, request by request. `usage.prompt_tokens` of an answer is the request's number.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Literal, cast

PIECE_S = 0.001  # between the packets of one event
TEXT = " river"
HTTP_LINE_END = b"\r\n"


@dataclass(frozen=True)
class Script:
    """`reasoning` of the events are thoughts. `per_packet` events leave together; one is cut into `pieces` packets.

    A role chunk of its own comes `early`, at once, or `late`, right before the first token.
    """

    ttft_s: float = 0.03
    gap_s: float = 0.008
    events: int = 12
    tokens_per_event: int = 1
    role: Literal["early", "late", "none"] = "none"
    reasoning: int = 0
    line_end: str = "\n"
    per_packet: int = 1
    pieces: int = 1
    status: int = 200
    message: str = ""
    text: str = TEXT
    break_off: bool = False


@dataclass
class Asked:
    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.raw)
        return found


@dataclass
class Told:
    """Monotonic ns: the request's last byte read, each event with generated data written, the end written."""

    received_ns: int
    token_ns: list[int] = field(default_factory=list)
    done_ns: int = 0
    tokens: int = 0

    @property
    def ttft_ns(self) -> int:
        return self.token_ns[0] - self.received_ns

    @property
    def gaps_ns(self) -> list[int]:
        return [after - before for before, after in pairwise(self.token_ns)]

    @property
    def tpot_ns(self) -> float:
        return (self.token_ns[-1] - self.token_ns[0]) / (self.tokens - 1)

    @property
    def e2e_ns(self) -> int:
        return self.done_ns - self.received_ns

    def as_dict(self) -> dict[str, Any]:
        return {
            "ttft_ms": self.ttft_ns / 1e6,
            "tpot_ms": self.tpot_ns / 1e6,
            "gaps_ms": [gap / 1e6 for gap in self.gaps_ns],
            "e2e_ms": self.e2e_ns / 1e6,
            "output_tokens": self.tokens,
        }


@dataclass(frozen=True)
class Event:
    """`at_s` counts from the request."""

    at_s: float
    payload: dict[str, Any] | str
    kind: Literal["plain", "token", "end"] = "plain"


class TruthServer:
    """`asked` and `told` are by request number. `pages` are what GET finds."""

    def __init__(self, script_of: Callable[[Asked], Script], pages: dict[str, bytes]) -> None:
        self.port = 0
        self.pages = pages
        self.gets = 0
        self.asked: list[Asked] = []
        self.told: list[Told] = []
        self._script_of = script_of

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, path: str) -> bytes | None:
        self.gets += 1
        if path == "/truth":
            return json.dumps([told.as_dict() for told in self.told if told.done_ns]).encode()
        return self.pages.get(path)

    async def answer(self, asked: Asked, received_ns: int, transport: asyncio.Transport) -> None:
        told, number = Told(received_ns), len(self.told)
        self.asked.append(asked)
        self.told.append(told)
        script = self._script_of(asked)
        if script.status != 200:
            transport.write(_document(script.status, json.dumps({"error": {"message": script.message}}).encode()))
        else:
            told.tokens = script.events * script.tokens_per_event
            await _stream(script, asked.path, number, told, transport)
        transport.close()


class _Connection(asyncio.Protocol):
    """One request; what it stands for is known from its first bytes to its last, so that one buffer does."""

    def __init__(self, server: TruthServer) -> None:
        self._server = server
        self._buffer = b""
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        stamp = time.monotonic_ns()
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        request_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, path, _ = request_line.split()
        if method == "GET":
            self._get(path)
        elif len(body) == int(headers["content-length"]):
            asked = Asked(path, headers, body)
            self._task = asyncio.get_running_loop().create_task(self._server.answer(asked, stamp, self._transport))

    def _get(self, path: str) -> None:
        page = self._server.page(path)
        self._transport.write(_document(404, b"") if page is None else _document(200, page))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()


async def _stream(script: Script, path: str, number: int, told: Told, transport: asyncio.Transport) -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    transport.write(head.encode())
    for packet in _packets(PROTOCOLS[path](script, number, told.tokens), script.per_packet):
        await _until(told.received_ns, packet[-1].at_s)
        written = await _write([_chunk(event, script.line_end) for event in packet], script.pieces, transport)
        for event, stamp_ns in zip(packet, written, strict=True):
            if event.kind == "token":
                told.token_ns.append(stamp_ns)
            elif event.kind == "end":
                told.done_ns = stamp_ns
        if script.break_off and told.token_ns:
            return
    transport.write(b"0\r\n\r\n")


def _packets(events: Iterable[Event], size: int) -> Iterator[list[Event]]:
    """Tokens together, everything else by itself."""
    waiting: list[Event] = []
    for event in events:
        if waiting and event.kind != "token":
            yield waiting
            waiting = []
        waiting.append(event)
        if event.kind != "token" or len(waiting) == size:
            yield waiting
            waiting = []


async def _until(start_ns: int, at_s: float) -> None:
    left_s = at_s - (time.monotonic_ns() - start_ns) / 1e9
    await asyncio.sleep(max(left_s, 0.0))


async def _write(chunks: Sequence[bytes], pieces: int, transport: asyncio.Transport) -> list[int]:
    """When each chunk was written: with the piece that has its last byte but for HTTP's own line end."""
    data, stamps = b"".join(chunks), list[int]()
    ends = [end - len(HTTP_LINE_END) for end in accumulate(map(len, chunks))]
    size = -(-len(data) // pieces)
    for start in range(0, len(data), size):
        if start:
            await asyncio.sleep(PIECE_S)
        stamp_ns = time.monotonic_ns()
        transport.write(data[start : start + size])
        stamps += [stamp_ns for end in ends if start < end <= start + size]
    return stamps


def _chunk(event: Event, line_end: str) -> bytes:
    """Of HTTP, with one event of SSE in it, which has a name where its payload has a type."""
    if isinstance(event.payload, str):
        lines = [f"data: {event.payload}"]
    else:
        name = event.payload.get("type")
        lines = [*([f"event: {name}"] if name else []), f"data: {json.dumps(event.payload)}"]
    data = "".join(line + line_end for line in (*lines, "")).encode()
    return b"%x\r\n%b" % (len(data), data) + HTTP_LINE_END


def _document(status: int, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


# The protocols: each makes a script into events


def _chat(script: Script, number: int, tokens: int) -> Iterator[Event]:
    if script.role != "none":
        at_s = 0.0 if script.role == "early" else script.ttft_s
        yield Event(at_s, _choice({"delta": {"role": "assistant", "content": ""}}))
    for index, at_s in enumerate(_token_times(script)):
        name = "reasoning_content" if index < script.reasoning else "content"
        last = index == script.events - 1
        yield Event(at_s, _choice({"delta": {name: _text(script)}}, "length" if last else None), "token")
    yield from _ending(script, number, tokens)


def _completions(script: Script, number: int, tokens: int) -> Iterator[Event]:
    for at_s in _token_times(script):
        yield Event(at_s, _choice({"text": _text(script)}), "token")
    yield from _ending(script, number, tokens)


def _responses(script: Script, number: int, tokens: int) -> Iterator[Event]:
    yield Event(0.0, {"type": "response.created", "response": {"status": "in_progress"}})
    yield Event(0.0, {"type": "response.output_item.added", "item": {"type": "message"}})
    for index, at_s in enumerate(_token_times(script)):
        name = "reasoning_text" if index < script.reasoning else "output_text"
        yield Event(at_s, {"type": f"response.{name}.delta", "delta": _text(script)}, "token")
    usage = {"input_tokens": number, "output_tokens": tokens}
    yield Event(_end_s(script), {"type": "response.completed", "response": {"usage": usage}}, "end")


PROTOCOLS: dict[str, Callable[[Script, int, int], Iterator[Event]]] = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _completions,
    "/v1/responses": _responses,
}


def _token_times(script: Script) -> Iterator[float]:
    return (script.ttft_s + index * script.gap_s for index in range(script.events))


def _end_s(script: Script) -> float:
    """A gap after the last token."""
    return script.ttft_s + script.events * script.gap_s


def _text(script: Script) -> str:
    return script.text * script.tokens_per_event


def _choice(choice: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, **choice, "finish_reason": finish_reason}]}


def _ending(script: Script, number: int, tokens: int) -> Iterator[Event]:
    yield Event(_end_s(script), {"choices": [], "usage": {"prompt_tokens": number, "completion_tokens": tokens}})
    yield Event(_end_s(script), "[DONE]", "end")


MODELS = json.dumps({"object": "list", "data": [{"id": "truth", "object": "model", "owned_by": "tests"}]}).encode()


@asynccontextmanager
async def truth_server(
    script_of: Callable[[Asked], Script] | Script = Script(), pages: Mapping[str, bytes] | None = None, port: int = 0
) -> AsyncIterator[TruthServer]:
    """In this event loop, on a free port unless one is given."""
    fixed = script_of
    server = TruthServer(
        fixed if callable(fixed) else lambda asked: fixed, {"/health": b"", "/v1/models": MODELS, **(pages or {})}
    )
    listener = await asyncio.get_running_loop().create_server(lambda: _Connection(server), "127.0.0.1", port)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


async def _serve(port: int, script: Script) -> None:
    async with truth_server(script, port=port) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--ttft-ms", type=float, default=30.0)
    parser.add_argument("--gap-ms", type=float, default=8.0)
    for name in ("events", "tokens-per-event", "reasoning", "per-packet", "pieces"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Script, name.replace("-", "_")))
    parser.add_argument("--role", choices=("early", "late", "none"), default="none")
    parser.add_argument("--crlf", action="store_true", help="lines end with CRLF")
    args = vars(parser.parse_args())
    script = Script(
        ttft_s=args.pop("ttft_ms") / 1e3,
        gap_s=args.pop("gap_ms") / 1e3,
        line_end="\r\n" if args.pop("crlf") else "\n",
        **{name: value for name, value in args.items() if name != "port"},
    )
    asyncio.run(_serve(args["port"], script))


if __name__ == "__main__":
    main()
