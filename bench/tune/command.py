"""The whole way of `streamgauge tune`, from a Plan to an exit code."""

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from bench import loop
from bench.arms import ArmError
from bench.compare_arms import CHECKOUT
from bench.run.spec import SpecError
from bench.tune import report, write
from bench.tune.search import Plan, Record, Tuner
from bench.tune.space import Device, Space, space
from bench.tune.trial import Stand


def execute(plan: Plan, config: Path | None, model: str | None, folder: Path, target: Path) -> int:
    """Returns the exit code; raises SpecError for what can't be done, and OSError for what can't be written."""
    # As `serve` chooses: an NVIDIA driver makes it a machine with a GPU.
    device: Device = "gpu" if shutil.which("nvidia-smi") else "cpu"
    settings = read(config or CHECKOUT / "configs" / f"{device}.yaml")
    folder.mkdir(parents=True, exist_ok=True)  # a mistyped one should not cost a whole search
    knobs = space(settings, device, sorted(os.sched_getaffinity(0)), plan.edge.wanted)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    record = _searched(plan, knobs, Stand(settings, folder, model), folder, started)
    said = [report.answer(record), str(report.save_json(folder, record, knobs, started))]
    said.append(str(report.save_html(folder, record, knobs, started)))
    if (winner := record.winner) is not None:
        said.append(str(write.save(target, write.tuned(record, winner, settings, started))))
    Console().print(*said, sep="\n", markup=False, highlight=False, soft_wrap=True)
    return report.exit_code(record)


def _searched(plan: Plan, knobs: Space, stand: Stand, folder: Path, started: str) -> Record:
    """What is known when the search ends, or is interrupted."""

    def keep(line: str) -> None:
        Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
        report.save_json(folder, tuner.record, knobs, started)

    tuner = Tuner(plan, knobs, stand.put, keep)

    async def whole() -> None:
        try:
            await tuner.run()
        finally:
            await stand.close()

    try:
        with suppress(KeyboardInterrupt):
            loop.run(whole())
    except ArmError as error:
        raise SpecError(f"the settings as they are: {error}") from error
    return tuner.record


def read(path: Path) -> dict[str, Any]:
    """Settings by section; raises SpecError for what isn't any, and OSError."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise SpecError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise SpecError(f"{path}: expected sections of settings")
    return found
