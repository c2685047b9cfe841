"""The settings that were found, as a file that `streamgauge serve --config` takes as it is."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.procfs import machine
from bench.tune.decide import Pairing
from bench.tune.search import Record
from bench.tune.space import Changes


def changed(settings: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """`changes`, by dotted path, over `settings`, which stay as they are."""
    found = copy.deepcopy(dict(settings))
    for path, value in changes.items():
        *sections, name = path.split(".")
        section = found
        for each in sections:
            section[each] = section.get(each) or {}  # a section without anything in it is read as None
            section = section[each]
        section[name] = value
    return found


def as_yaml(settings: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(settings), sort_keys=False)
    return text


def tuned(record: Record, winner: Pairing, settings: Mapping[str, Any], started: str) -> str:
    """The file: what differs from the server's defaults, with what was found, on what and when, on top."""
    header = "".join(f"# {line}\n" for line in _header(record, winner, started))
    return header + as_yaml(changed(settings, winner.changes))


def _header(record: Record, winner: Pairing, started: str) -> list[str]:
    here, found, spec = machine(), winner.ratio, record.plan.edge.spec
    requests = sum(len(visit.good) for visit in winner.rounds[-1].other)
    over = "the settings it started from" if not winner.incumbent else "settings that had already won"
    return [
        f"Found by `streamgauge tune --slo '{record.plan.edge.wanted.text}'`, {started}.",
        f"Goodput at {winner.rate:g} requests/s is {found.value:.3f} times that of {over}: {found.confidence:.2%}",
        f"interval {found.low:.3f} to {found.high:.3f}, A/A width {found.aa_width:.1%}, {requests} requests a side,",
        "which confirmed a round of as many requests before it.",
        f"{len(record.pairings)} candidates were paired, {len(record.trials)} trials made before.",
        f"Prompts of {spec.prompts.lengths.mean} tokens, answers of {spec.output.mean}.",
        f"Machine: {here['cpu']}, {here['cores']} cores, {here['memory']}.",
        "Changed: " + ", ".join(f"{path}={value}" for path, value in winner.changes.items()),
    ]


def save(path: Path, text: str) -> Path:
    """Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
