import json
from collections.abc import Callable
from pathlib import Path

from bench.micro.turns import Cost, in_turn, table, write


def test_arms_take_turns_there_and_back_and_the_first_round_is_not_counted() -> None:
    visits: list[str] = []

    def arm(name: str, costs: list[float]) -> Callable[[], float]:
        def visit() -> float:
            visits.append(name)
            return costs.pop(0)

        return visit

    found = in_turn({"a": arm("a", [99, 3, 1, 2]), "b": arm("b", [99, 6, 6, 9])}, "here", rounds=3)
    assert "".join(visits) == "abbaabba"
    assert found == [Cost("a", "here", 2, 1, 3), Cost("b", "here", 6, 6, 9)]


def test_the_table_has_a_row_per_arm_and_leaves_open_what_was_not_measured() -> None:
    costs = [Cost("a", "x", 1.23456, 1, 2), Cost("b", "x", 4, 3, 5), Cost("a", "y", 10, 9, 11)]
    assert table(costs).splitlines() == [
        "| µs per token, median (least–most) | x | y |",
        "| --- | ---: | ---: |",
        "| a | 1.235 (1–2) | 10 (9–11) |",
        "| b | 4 (3–5) |  |",
    ]


def test_the_file_has_the_figures_and_the_setting(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write(path, [Cost("a", "x", 1, 0.5, 2)], {"threads": 2})
    assert json.loads(path.read_text()) == {
        "setting": {"threads": 2},
        "costs": [{"arm": "a", "where": "x", "us": 1, "least": 0.5, "most": 2}],
    }
