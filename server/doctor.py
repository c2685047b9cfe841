"""`streamgauge doctor`: what this machine has for the engine, and where the engine's steps spend their time."""

import asyncio
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.table import Table

from sampling.params import SamplingParams
from sampling.probe.records import GAP, PARTS, Step
from server.app import create_engine, engine_environment
from server.config import Settings
from server.engine.model_store import ModelStore, ModelStoreError
from server.engine.protocol import Engine
from server.engine.runtime import detect_device
from server.request import EngineRequest, TokenDelta

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 128
WARM_UP_STEPS = 20
DEADLINE_S = 600.0
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """`concern`: it works without, but worse; None where all is well."""

    what: str
    is_so: str
    concern: str | None = None


def look(settings: Settings) -> list[Finding]:
    """What the settings would run on. Nothing is loaded."""
    cores = sorted(os.sched_getaffinity(0))
    return [
        Finding("python", platform.python_version()),
        *(_installed(name) for name in ("torch", "vllm")),
        Finding("device", detect_device()),
        Finding("cores", f"{len(cores)} of {os.cpu_count()}"),
        _memory(),
        _model(settings),
        *_preloaded(settings),
    ]


async def profile(settings: Settings, steps: int, streams: int) -> list[Step]:
    """Load the engine, keep `streams` synthetic sequences in it, and return `steps` steps, the first ones left out.

    Raises ServeError when the engine fails and TimeoutError after `DEADLINE_S`.
    """
    seen: list[Step] = []
    enough = asyncio.Event()

    def on_step(step: Step) -> None:
        seen.append(step)
        if len(seen) >= WARM_UP_STEPS + steps:
            enough.set()

    engine = await asyncio.to_thread(create_engine, settings, on_step)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await engine.start()
            seen.clear()
            await _load(engine, streams, enough)
    finally:
        await engine.close()
    return seen[WARM_UP_STEPS : WARM_UP_STEPS + steps]


async def _load(engine: Engine, streams: int, enough: asyncio.Event) -> None:
    """Keep the engine busy until there is enough; raises what ends a sequence."""
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(enough.wait())]
    tasks += [asyncio.create_task(_keep_busy(engine, number)) for number in range(streams)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_busy(engine: Engine, number: int) -> None:
    """One sequence after another, with prompts that share no prefix."""
    room = engine.model.max_model_len
    prompt_tokens = min(PROMPT_TOKENS, room // 2)
    params = SamplingParams(min(OUTPUT_TOKENS, room - prompt_tokens), ignore_eos=True, **_defaults(engine))
    round_ = 0
    while True:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        salt = f"doctor-{number}-{round_}"
        prompt = [(number + 7 * position) % engine.model.vocab_size for position in range(prompt_tokens)]

        def on_step(delta: TokenDelta, ended: asyncio.Future[None] = ended) -> None:
            if not ended.done() and delta.error is not None:
                ended.set_exception(delta.error)
            elif not ended.done() and delta.finish_reason is not None:
                ended.set_result(None)

        handle = engine.submit(EngineRequest(salt, prompt, params, cache_salt=salt), on_step, lambda: None)
        try:
            await ended
        finally:
            handle.abort()
        round_ += 1


def _defaults(engine: Engine) -> dict[str, Any]:
    """What a request gets that says nothing of sampling."""
    return {name: value for name, value in engine.model.default_sampling.items() if name != "max_tokens"}


def findings_table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, show_header=False)
    for finding in findings:
        mark = "[yellow]![/]" if finding.concern else "[green]✓[/]"
        table.add_row(mark, finding.what, finding.is_so, finding.concern or "")
    return table


def steps_table(steps: Sequence[Step]) -> Table:
    """Percentiles of each part in ms, and its share of the steps' wall time; of two steps or more."""
    table = Table()
    for column in ("part", "p50 ms", "p95 ms", "p99 ms", "share"):
        table.add_column(column, justify="left" if column == "part" else "right")
    wall = sum(step.wall for step in steps)
    for part in (*PARTS, "wall"):
        values = [getattr(step, part) for step in steps]
        percentiles = quantiles(values, n=100, method="inclusive")  # by linear interpolation
        name = f"gap: {part}" if part in GAP else part
        figures = [f"{percentiles[percent - 1] / 1e6:.3f}" for percent in (50, 95, 99)]
        table.add_row(name, *figures, f"{sum(values) / wall:.1%}", end_section=part == PARTS[-1])
    return table


def summary(steps: Sequence[Step]) -> str:
    """What the steps came to, in a line."""
    wall = sum(step.wall for step in steps)
    busy = sum(step.busy for step in steps) / wall
    rate = sum(step.decode_tokens for step in steps) * 1e9 / wall
    running = sum(step.running for step in steps) / len(steps)
    overlapped = ", steps overlap: parts do not add up" if any(step.overlapped for step in steps) else ""
    return (
        f"{len(steps)} steps, {running:.1f} of {steps[0].room} sequences, {rate:.0f} decode tokens/s, "
        f"effective utilization {busy:.0%}{overlapped}"
    )


def _installed(name: str) -> Finding:
    for distribution in (name, f"{name}-cpu"):
        try:
            return Finding(name, importlib.metadata.version(distribution))
        except importlib.metadata.PackageNotFoundError:
            continue
    return Finding(name, "not installed", "only the scripted engine can run")


def _memory() -> Finding:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
    shared = shutil.disk_usage("/dev/shm").free // _MIB if Path("/dev/shm").is_dir() else 0
    return Finding("memory", f"{free} MiB free, {shared} MiB shared", None if shared >= 64 else "little shared memory")


def _model(settings: Settings) -> Finding:
    name = settings.engine.model
    try:
        return Finding("model", f"{name} in {ModelStore().resolve(name, settings.engine.precision)}")
    except ModelStoreError as error:
        return Finding("model", name, str(error))


def _preloaded(settings: Settings) -> list[Finding]:
    if detect_device() == "gpu":
        return []
    environment = engine_environment(settings, settings.engine.model)
    libraries = (environment.get("LD_PRELOAD") or os.environ.get("LD_PRELOAD", "")).split(":")
    names = [Path(library).name for library in libraries]
    wanted = (("allocator", "malloc", "libtcmalloc is missing"), ("openmp", "omp", "libiomp5 is missing"))
    return [
        Finding(what, next((name for name in names if part in name), "the system's"), _unless(part, names, concern))
        for what, part, concern in wanted
    ]


def _unless(part: str, names: Sequence[str], concern: str) -> str | None:
    return None if any(part in name for name in names) else f"{concern}: the engine will be slower"
