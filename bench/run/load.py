"""Puts load on a server as a Spec has it, from this process or several, and gathers what came of it."""

import asyncio
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson

from bench.procfs import machine
from bench.run import series
from bench.run.address import Address, get, reach
from bench.run.meter import Progress
from bench.run.result import Result
from bench.run.share import Outcome, Share
from bench.run.spec import Open, Spec
from bench.run.workers import Workers, first_of, tick

__all__ = ["Progress", "run"]

# From all being ready to the first request: time for the origin to reach every process, and for first connections.
START_NS = 300_000_000
VERSION_DEADLINE_S = 5.0
PACKAGES = ("streamgauge", "uvloop", "orjson")


async def run(spec: Spec, on_progress: Callable[[Progress], None] | None = None) -> Result:
    """All requests of the Spec, answered or failed. `on_progress` is called at most four times a second.

    Raises SpecError for what can't be asked, for a server that isn't there, and for one that refuses every request
    alike before it has answered any; Lost for a process that died. What `on_progress` raises ends the run.
    """
    address = await reach(Address.of(spec))
    crew: Share | Workers = Share(spec, address) if spec.processes == 1 else Workers(spec, address)
    try:
        await crew.prepare()
        return await _measured(spec, address, crew, on_progress)
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    finally:
        crew.close()


async def _measured(
    spec: Spec, address: Address, crew: Share | Workers, on_progress: Callable[[Progress], None] | None
) -> Result:
    facts = {"machine": machine(), "versions": _versions(), "server": await _server_version(address)}
    found: series.Series = {}
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(series.watch(address, found))]
        if on_progress is not None:
            beside.append(group.create_task(tick(lambda: on_progress(crew.progress()))))
        origin_ns = time.monotonic_ns() + START_NS
        outcome = await crew.run(origin_ns)
        for task in beside:
            task.cancel()
    if on_progress is not None:
        on_progress(crew.progress())
    return _result(spec, origin_ns, outcome, found, facts)


def _result(spec: Spec, origin_ns: int, outcome: Outcome, found: series.Series, facts: dict[str, Any]) -> Result:
    samples = sorted(outcome.samples, key=lambda sample: sample.origin_ns)
    # The warm-up of an open loop is the first part of its arrivals.
    start_ns = samples[0].origin_ns if samples and isinstance(spec.load, Open) else origin_ns
    return Result(
        spec=spec.as_dict(),
        samples=samples,
        origin_ns=start_ns,
        wall_ns=outcome.ended_ns - start_ns,
        facts=facts | _client_facts(outcome, outcome.ended_ns - origin_ns),
        series={
            name: [((at - start_ns) / 1e9, value) for at, value in values if at >= start_ns]
            for name, values in found.items()
        },
    )


def _client_facts(outcome: Outcome, wall_ns: int) -> dict[str, Any]:
    """`client_busy` is each process's share of one core."""
    events = outcome.events
    return {
        "client_processes": len(outcome.cpu_ns),
        "client_busy": [round(cpu_ns / wall_ns, 3) for cpu_ns in outcome.cpu_ns],
        "client_cpu_us_per_event": round(sum(outcome.cpu_ns) / 1e3 / events, 2) if events else None,
        "unsent_turns": outcome.unsent,
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


async def _server_version(address: Address) -> dict[str, Any] | None:
    """What its /version tells, as vLLM's does; None where there is none."""
    with suppress(OSError, TimeoutError, orjson.JSONDecodeError):
        found = orjson.loads(await get(address, "/version", VERSION_DEADLINE_S) or b"null")
        return found if isinstance(found, dict) else None
    return None
