"""What the client itself costs: CPU time per event, against a server process that only plays ready bytes.

    python -m bench.micro.client --streams 32 --events 2000 --step-ms 5

Prints one JSON line. Every event is one write of its own, so nothing is saved by events that arrive together.
"""

import argparse
import asyncio
import json
import multiprocessing as mp
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import uvloop

from bench import loop
from bench.load import Target, run_closed_loop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" river"},"logprobs":null,"finish_reason":null}]}\n\n'
)


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def closing_events(events: int) -> bytes:
    usage = b'data: {"id":"c","choices":[],"usage":{"completion_tokens":%d}}\n\n' % events
    return chunk(usage) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


async def _serve(ready: Connection, events: int, step_s: float) -> None:
    event, tail = chunk(EVENT), closing_events(events)

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        for _ in range(events):
            await asyncio.sleep(step_s)
            writer.write(event)
        writer.write(tail)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server_process(ready: Connection, events: int, step_s: float) -> None:
    uvloop.run(_serve(ready, events, step_s))  # not the bench's own loop, which reports a SIGTERM: that is how it ends


async def _measure(port: int, streams: int) -> dict[str, float | int]:
    target = Target("127.0.0.1", port, "/", body=lambda number: b"{}")
    cpu_ns = time.process_time_ns()
    result = await run_closed_loop(target.send, concurrency=streams, requests=streams)
    cpu_ns = time.process_time_ns() - cpu_ns
    events = sum(len(sample.events) for sample in result.samples)
    return {
        "streams": streams,
        "events": events,
        "failed": len(result.samples) - result.summary.completed,
        "events_per_s": round(events / (result.wall_ns / 1e9)),
        "client_cpu_us_per_event": round(cpu_ns / 1e3 / events, 2),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--events", type=int, default=2000)
    parser.add_argument("--step-ms", type=float, default=5.0)
    args = parser.parse_args(argv)
    ours, theirs = mp.get_context("spawn").Pipe()
    server = mp.get_context("spawn").Process(target=_server_process, args=(theirs, args.events, args.step_ms / 1e3))
    server.start()
    try:
        print(json.dumps(loop.run(_measure(ours.recv(), args.streams))))
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
