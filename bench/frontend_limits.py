"""How far front ends go without a model: the most steps per second they keep up with, how late a token is read at half
of that, and what becomes of it past that.

    python -m bench.frontend_limits --output DIR --stock-python OTHER_VENV/bin/python

Arms as in `bench.frontend`: `ours` and `stock`, vLLM's engine over `bench.null_executor` behind either. All streams
start together and run for as long; what is counted is the time in which all of them do (`bench.frontend_steps`).

* Highest step rate: the step is halved until fewer than KEPT events come per token, then bisected.
* Lateness, from the executor's stamp of a step to the client's read of its events, at twice that step: the engine's
  own work after sampling is in it.
* Past it, with steps that take no time: ours as it is, and with vLLM's `stream_interval` of 8, in turn (A B B A).
  Beside the streams a prober asks for /health on new connections, and drops clients until /load no longer has them.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

import orjson

from bench import frontend, loop
from bench.arms import HOST, Arm, Running, get, running, served_model
from bench.bodies import chat_body
from bench.compare_arms import OURS, ComparisonError, add_stock_python, check_stock, describe
from bench.compare_stock import PATH
from bench.frontend_kinds import KINDS
from bench.frontend_steps import Kept, kept
from bench.load import Target, run_closed_loop
from bench.procfs import process_cpu
from bench.wire import request_bytes

KEPT = 0.98  # events per token
FIRST_STEP_MS = 8.0
BISECTIONS = 3
STREAM_S = 6.0
MOST_TOKENS = 3500
INTERVAL = "engine.args.stream_interval=8"
# Nothing is allocated; too little would have the scheduler preempt long streams.
ROOM = "engine.args.kv_cache_memory_bytes=34359738368"
PROBE_S = 0.1
STARTED_S = 1.0  # all streams run by then
GONE_DEADLINE_S = 10.0


@dataclass
class Probed:
    """In ms: answers of /health on new connections, and how long dropped clients stayed in /load."""

    health: list[float] = field(default_factory=list)
    gone: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Point:
    """One visit. `cpu_us` is the API process's, per token."""

    arm: str
    step_ms: float
    kept: Kept
    cpu_us: float
    probed: Probed

    @property
    def tokens_per_s(self) -> float:
        return self.kept.tokens / self.kept.seconds

    @property
    def bound_ms(self) -> float:
        """2 ms and each stream's event once: nobody's can be promised before the others'."""
        return 2 + self.kept.streams * self.cpu_us / self.kept.events_per_token / 1e3

    def as_dict(self) -> dict[str, object]:
        late = {"late_p50_ms": self.kept.late_ms(0.5), "late_p99_ms": self.kept.late_ms(0.99)}
        counted = {"steps_per_s": self.kept.steps_per_s, "events_per_token": self.kept.events_per_token}
        return {
            "arm": self.arm,
            "step_ms": self.step_ms,
            "streams": self.kept.streams,
            "cpu_us_per_token": self.cpu_us,
        } | ({"tokens_per_s": self.tokens_per_s, "bound_ms": self.bound_ms, **counted, **late, **asdict(self.probed)})


class Limits:
    """Visits arms. `points` has what came of each, in order."""

    def __init__(self, args: argparse.Namespace, scratch: Path) -> None:
        self.points: list[Point] = []
        self._args = args
        self._scratch = scratch

    async def keeps_up_with(self, arm: str, streams: int) -> float:
        """The shortest step, ms, at which the arm has KEPT events per token, to a twelfth of it."""
        step_ms = FIRST_STEP_MS
        kept_ms = lost_ms = None
        while kept_ms is None or lost_ms is None:
            if (await self.visit(arm, step_ms, streams)).kept.events_per_token >= KEPT:
                kept_ms, step_ms = step_ms, step_ms / 2
            else:
                lost_ms, step_ms = step_ms, step_ms * 2
        for _ in range(BISECTIONS):
            step_ms = (kept_ms * lost_ms) ** 0.5
            if (await self.visit(arm, step_ms, streams)).kept.events_per_token >= KEPT:
                kept_ms = step_ms
            else:
                lost_ms = step_ms
        return kept_ms

    async def visit(self, arm: str, step_ms: float, streams: int, *settings: str, probes: bool = False) -> Point:
        stamps = self._scratch / "stamps"
        stamps.unlink(missing_ok=True)
        chosen = self._arm(arm, step_ms, streams, settings, stamps)
        log = self._args.output / f"{len(self.points)}-{arm}.log"
        tokens = min(max(int(STREAM_S * 1e3 / step_ms), 256), MOST_TOKENS) if step_ms else MOST_TOKENS
        async with running(chosen, log, ready_deadline_s=300, stop_deadline_s=60) as up:
            point = await self._measure(arm, step_ms, up, tokens, streams, stamps, probes)
        self.points.append(point)
        print(json.dumps(point.as_dict() | {"health": len(point.probed.health)}), file=sys.stderr, flush=True)
        return point

    def _arm(self, name: str, step_ms: float, streams: int, settings: Sequence[str], stamps: Path) -> Arm:
        args = argparse.Namespace(**{**vars(self._args), "step_ms": step_ms, "streams": [streams + 1]})
        for setting in (ROOM, *settings):
            args.ours_command += f" --set {setting}"
            args.engine_command += f" --set {setting}"
        (arm,) = frontend.frontend_arms(frontend.arm_options(args), [name], self._scratch, args)
        return replace(arm, env={**arm.env, "STREAMGAUGE_NULL_STAMPS": str(stamps)})

    async def _measure(
        self, arm: str, step_ms: float, up: Running, tokens: int, streams: int, stamps: Path, probes: bool
    ) -> Point:
        model = await served_model(up.port)
        short, long = (chat_body(model, max_tokens=count, prompt_words=8) for count in (16, tokens))
        await run_closed_loop(Target(HOST, up.port, PATH, short).send, concurrency=streams, requests=streams)
        probed = Probed()
        prober = asyncio.create_task(_probe(up.port, long(streams), probed)) if probes else None
        target = Target(HOST, up.port, PATH, long, deadline_s=120)
        before = process_cpu(up.pid)
        try:
            result = await run_closed_loop(target.send, concurrency=streams, requests=streams, first=streams + 1)
        finally:
            if prober is not None:
                prober.cancel()
                await _ended(prober)
        cpu_ns = (process_cpu(up.pid) - before).run_ns
        found = kept(result.samples, _stamps(stamps))
        return Point(arm, step_ms, found, cpu_ns / 1e3 / result.summary.output_tokens, probed)


def _stamps(path: Path) -> list[int]:
    return sorted(map(int, path.read_text().split()))


async def _ended(prober: asyncio.Task[None]) -> None:
    """Raises what ended it before it was cancelled."""
    with suppress(asyncio.CancelledError):
        await prober


async def _probe(port: int, body: bytes, probed: Probed) -> None:
    """Until it is cancelled. /load counts requests: those of the streams, and the one that is dropped here."""
    await asyncio.sleep(STARTED_S)
    while True:
        for _ in range(5):
            started = time.monotonic()
            await get(port, "/health")
            probed.health.append((time.monotonic() - started) * 1e3)
            await asyncio.sleep(PROBE_S)
        load = await _load(port)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(request_bytes(HOST, port, PATH, body, {}))
        await reader.readuntil(b"data: ")
        writer.transport.abort()
        dropped = time.monotonic()
        async with asyncio.timeout(GONE_DEADLINE_S):
            while await _load(port) > load:  # noqa: ASYNC110
                await asyncio.sleep(PROBE_S / 50)
        probed.gone.append((time.monotonic() - dropped) * 1e3)


async def _load(port: int) -> int:
    _, body = await get(port, "/load")
    found: int = orjson.loads(body)["server_load"]
    return found


async def measure(limits: Limits, args: argparse.Namespace) -> list[str]:
    """Lines of a report."""
    lines = [f"highest step rate with {KEPT} events per token, {args.streams} streams:"]
    steps = {arm: await limits.keeps_up_with(arm, args.streams) for arm in args.arms.split(",")}
    lines += [f"  {arm}: {1e3 / step_ms:.0f} steps/s ({step_ms:.2f} ms)" for arm, step_ms in steps.items()]
    lines.append("late, from the executor's stamp to the client's read, at half of our rate:")
    for streams in (16, args.streams):
        step_ms = 2 * (steps[OURS] if streams == args.streams else await limits.keeps_up_with(OURS, streams))
        point = await limits.visit(OURS, step_ms, streams)
        p50, p99 = (point.kept.late_ms(share) or 0.0 for share in (0.5, 0.99))
        lines.append(
            f"  {streams} streams, {1e3 / step_ms:.0f} steps/s: p50 {p50:.2f} ms, p99 {p99:.2f} ms "
            f"(2 ms + N × CPU per event: {point.bound_ms:.2f} ms)"
        )
    lines.append(f"past it, no time between steps, {args.streams} streams:")
    for settings in ((), (INTERVAL,), (INTERVAL,), ()):
        point = await limits.visit(OURS, 0, args.streams, *settings, probes=True)
        health, gone = point.probed.health, point.probed.gone
        lines.append(
            f"  {', '.join(settings) or 'as it is'}: {point.tokens_per_s:.0f} tokens/s, "
            f"{1 / point.kept.events_per_token:.2f} tokens/event, /health p50 {median(health):.1f} and at most "
            f"{max(health):.1f} ms ({len(health)}), "
            + (f"dropped clients gone after at most {max(gone):.1f} ms ({len(gone)})" if gone else "no client dropped")
        )
    return lines


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.frontend_limits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the figures and the logs")
    parser.add_argument("--arms", default="ours,stock", help="whose highest step rate is looked for")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--kind", default="plain", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--model", default="smollm2-135m", help="as our server knows it; only its tokenizer is used")
    parser.add_argument("--ours-command", default="{python} -m server serve {model} --port {port}")
    parser.add_argument("--engine-command", default="{python} -m server config engine-command {model}")
    add_stock_python(parser)
    parser.add_argument("--stock-arg", action="append", default=[], help="for the stock arm; as --stock-arg=X")
    parser.add_argument("--allow-same-env", action="store_true", help="stock may share our environment, plugins off")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(args, Path(folder))
        try:
            if frontend.STOCK in args.arms.split(","):
                options = frontend.arm_options(argparse.Namespace(**{**vars(args), "step_ms": 0, "streams": [1]}))
                check_stock(
                    options, *(describe(python, Path(folder)) for python in (sys.executable, args.stock_python))
                )
        except ComparisonError as error:
            print(error, file=sys.stderr)
            return 2
        try:
            lines = loop.run(measure(limits, args))
        finally:
            found = [point.as_dict() for point in limits.points]
            (args.output / "limits.json").write_text(json.dumps(found, indent=1))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
