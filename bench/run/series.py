"""The server's own gauges while it is under load, read once a second from its /metrics (Prometheus text format)."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

from bench.run.address import Address, get

PERIOD_S = 1.0
DEADLINE_S = 5.0  # of one reading: a server under load may be slow, and its worst seconds are the telling ones

# What is kept; series of one name, as of several engines, are added up.
SUMMED = (
    "streamgauge_engine_waiting",
    "streamgauge_requests_in_flight",
    "streamgauge_admission_queued",
    "streamgauge_admission_in_use",
    "streamgauge_admission_limit",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
)
# Shares, of which the mean is taken.
AVERAGED = ("streamgauge_engine_busy_ratio", "streamgauge_engine_kv_usage_ratio", "vllm:kv_cache_usage_perc")
# Histograms: what their observations since the previous reading were on average.
OBSERVED = ("streamgauge_batch_occupancy",)

_WANTED = {*SUMMED, *AVERAGED, *(f"{name}{end}" for name in OBSERVED for end in ("_sum", "_count"))}

Series = dict[str, list[tuple[int, float]]]
"""By name: (monotonic ns, value)."""


async def watch(address: Address, into: Series, period_s: float = PERIOD_S) -> None:
    """Adds to `into` until cancelled; returns when the first reading finds nothing: this server has no such page."""
    previous: Mapping[str, float] = {}
    while (found := await _reading(address)) or previous:
        now = time.monotonic_ns()
        for name, value in (values(found, previous) if found else {}).items():
            into.setdefault(name, []).append((now, value))
        previous = found or previous
        await asyncio.sleep(period_s)


async def _reading(address: Address) -> dict[str, float]:
    """Empty where there is nothing to be had."""
    with suppress(OSError, TimeoutError):
        return parse((await get(address, "/metrics", DEADLINE_S) or b"").decode(errors="replace"))
    return {}


def values(found: Mapping[str, float], previous: Mapping[str, float]) -> dict[str, float]:
    """What two readings on end say, by the names that are kept."""
    kept = {name: found[name] for name in (*SUMMED, *AVERAGED) if name in found}
    for name in OBSERVED:
        total, count = (found.get(name + end, 0.0) - previous.get(name + end, 0.0) for end in ("_sum", "_count"))
        # The first reading has all that was before the run.
        if previous and count > 0:
            kept[name] = total / count
    return kept


def parse(text: str) -> dict[str, float]:
    """The wanted values of a page; lines that are no samples are passed over."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in _samples(text.splitlines()):
        found[name].append(value)
    return {name: sum(each) / (len(each) if name in AVERAGED else 1) for name, each in found.items()}


def _samples(lines: Iterable[str]) -> Iterable[tuple[str, float]]:
    """https://prometheus.io/docs/instrumenting/exposition_formats/: NAME{LABELS} VALUE, labels and a stamp optional."""
    for line in lines:
        name, brace, rest = line.partition("{")
        if not brace:
            name, _, rest = line.partition(" ")
        if name in _WANTED:
            with suppress(ValueError, IndexError):
                yield name, float(rest.rpartition("}")[2].split()[0])
