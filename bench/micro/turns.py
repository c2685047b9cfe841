"""Arms that take turns in one run, and the table of what they came to."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True)
class Cost:
    """What an arm costs in one place: µs per token, the median of its rounds, the least and the most."""

    arm: str
    where: str
    us: float
    least: float
    most: float


def in_turn(arms: Mapping[str, Callable[[], float]], where: str, rounds: int) -> list[Cost]:
    """Each arm once per round, every other round backwards (A B B A). An arm says what a token cost it, in µs.

    A first round that isn't counted fills caches and allocators.
    """
    found: dict[str, list[float]] = {arm: [] for arm in arms}
    for turn in range(rounds + 1):
        for arm in list(arms)[:: -1 if turn % 2 else 1]:
            us = arms[arm]()
            if turn:
                found[arm].append(us)
    return [Cost(arm, where, median(us), min(us), max(us)) for arm, us in found.items()]


def table(costs: Sequence[Cost]) -> str:
    """Markdown: a row per arm, a column per place."""
    columns = list(dict.fromkeys(cost.where for cost in costs))
    cells = {(cost.arm, cost.where): f"{cost.us:.4g} ({cost.least:.4g}–{cost.most:.4g})" for cost in costs}
    lines = [["µs per token, median (least–most)", *columns], ["---"] + ["---:"] * len(columns)]
    for arm in dict.fromkeys(cost.arm for cost in costs):
        lines.append([arm, *(cells.get((arm, column), "") for column in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(path: Path, costs: Sequence[Cost], setting: Mapping[str, object]) -> None:
    """As JSON, with what else a reader needs to know of the run."""
    path.write_text(json.dumps({"setting": setting, "costs": [asdict(cost) for cost in costs]}, indent=1) + "\n")
