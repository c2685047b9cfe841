"""A long run without a model: does the event loop stall, do gaps spread, does memory grow?

    python -m bench.soak --minutes 30 --streams 128 --output DIR

This server over `bench.null_executor`, in a closed loop of answers of 32 to 256 tokens, of which one in fifty is
dropped by its client on the way. Stalls are what the server's own series say (`streamgauge_event_loop_lag_seconds`),
gaps what the client read, memory the resident set of the serving process, a straight line through its last two thirds.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench import frontend, loop
from bench.arms import HOST, Running, get, running, served_model
from bench.bodies import chat_body
from bench.compare_arms import OURS
from bench.compare_stock import PATH
from bench.frontend_kinds import KINDS
from bench.load import Target
from bench.procfs import resident_bytes
from bench.sample import RequestSample

LENGTHS = (32, 256)
DROPPED = 0.02
SAMPLE_S = 5.0
STALL_S = "0.02"  # a bucket's bound
GAP_BIN_NS = 100_000


@dataclass
class Soak:
    """What a run came to. Gaps are counted in bins of GAP_BIN_NS; `memory` has (seconds, bytes)."""

    gaps: Counter[int] = field(default_factory=Counter)
    memory: list[tuple[float, int]] = field(default_factory=list)
    answered: int = 0
    dropped: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    stalls: int = 0
    longest_lag_s: str = ""

    def take(self, sample: RequestSample) -> None:
        if sample.error is not None:
            self.failed[sample.error] += 1
            return
        self.answered += 1
        for gap in sample.gaps_ns:
            self.gaps[gap // GAP_BIN_NS] += 1

    def gap_ms(self, share: float) -> float:
        """That share of the gaps is no longer, to the upper end of its bin."""
        wanted, seen = share * self.gaps.total(), 0
        for bin_, count in sorted(self.gaps.items()):
            seen += count
            if seen >= wanted:
                return (bin_ + 1) * GAP_BIN_NS / 1e6
        return 0.0

    @property
    def mb_per_hour(self) -> float:
        """Of the last two thirds: until then caches and rings fill."""
        settled = self.memory[len(self.memory) // 3 :]
        seconds, size = np.array(settled, dtype=np.float64).T
        return float(np.polyfit(seconds, size, 1)[0]) * 3600 / 1e6

    def as_dict(self) -> dict[str, object]:
        p50, p999 = self.gap_ms(0.5), self.gap_ms(0.999)
        return {
            "answered": self.answered,
            "dropped": self.dropped,
            "failed": dict(self.failed),
            "loop_stalls_over_20_ms": self.stalls,
            "longest_loop_lag_at_most_s": self.longest_lag_s,
            "gap_p50_ms": p50,
            "gap_p99.9_ms": p999,
            "gap_p99.9_over_p50": p999 / p50 if p50 else None,
            "rss_mb": round(self.memory[-1][1] / 1e6, 1),
            "rss_mb_per_hour": round(self.mb_per_hour, 2),
        }


def lag_buckets(metrics: str) -> Mapping[str, float]:
    """Cumulative counts by upper bound, as the server's page has them."""
    prefix = 'streamgauge_event_loop_lag_seconds_bucket{le="'
    lines = (line.removeprefix(prefix) for line in metrics.splitlines() if line.startswith(prefix))
    return {bound: float(count) for bound, _, count in (line.partition('"} ') for line in lines)}


def stalls(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[int, str]:
    """How many timers were later than STALL_S between two pages, and the bound that none was beyond."""
    new = {bound: after[bound] - before[bound] for bound in after}
    longest = next(bound for bound, count in new.items() if count == new["+Inf"])
    return round(new["+Inf"] - new[STALL_S]), longest


async def soak(up: Running, args: argparse.Namespace) -> Soak:
    found, model = Soak(), await served_model(up.port)
    deadline = time.monotonic() + 60 * args.minutes
    before: Mapping[str, float] = {}

    async def user(number: int) -> None:
        chance = random.Random(number)
        for turn in range(sys.maxsize):
            if time.monotonic() >= deadline:
                return
            await _request(chance, number + turn * args.streams, model, up.port, found)

    async with asyncio.TaskGroup() as group:
        for number in range(args.streams):
            group.create_task(user(number))
        await asyncio.sleep(10)  # the first burst of requests is not what is looked at
        before = lag_buckets((await get(up.port, "/metrics"))[1].decode())
        started = time.monotonic()
        while (left := deadline - time.monotonic()) > 0:
            found.memory.append((time.monotonic() - started, resident_bytes(up.pid)))
            print(f"{left / 60:.1f} min left, {found.answered} answered", file=sys.stderr, flush=True)
            await asyncio.sleep(min(SAMPLE_S, left))
        found.stalls, found.longest_lag_s = stalls(before, lag_buckets((await get(up.port, "/metrics"))[1].decode()))
    return found


async def _request(chance: random.Random, number: int, model: str, port: int, found: Soak) -> None:
    tokens = chance.randint(*LENGTHS)
    target = Target(HOST, port, PATH, chat_body(model, max_tokens=tokens, prompt_words=48), deadline_s=120)
    if chance.random() >= DROPPED:
        found.take(await target.send(number, None))
        return
    try:
        async with asyncio.timeout(chance.uniform(0.01, 1.0)):
            found.take(await target.send(number, None))
    except TimeoutError:
        found.dropped += 1


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the figures and the log")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=128, help="at a time")
    parser.add_argument("--step-ms", type=float, default=20.0, help="of an engine step")
    parser.add_argument("--model", default="smollm2-135m", help="as our server knows it; only its tokenizer is used")
    parser.add_argument("--ours-command", default="{python} -m server serve {model} --port {port}")
    return parser.parse_args(argv)


async def run(args: argparse.Namespace, scratch: Path) -> Soak:
    also = {"streams": [args.streams], "kind": next(iter(KINDS)), "engine_command": "", "stock_python": sys.executable}
    whole = argparse.Namespace(**{**vars(args), **also, "stock_arg": [], "allow_same_env": False})
    [arm] = frontend.frontend_arms(frontend.arm_options(whole), [OURS], scratch, whole)
    async with running(arm, args.output / "server.log", ready_deadline_s=300, stop_deadline_s=60) as up:
        return await soak(up, args)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        found = loop.run(run(args, Path(scratch)))
    (args.output / "soak.json").write_text(json.dumps({**found.as_dict(), "memory": found.memory}, indent=1))
    print("\n".join(f"{name}: {value}" for name, value in found.as_dict().items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
