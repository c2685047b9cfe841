"""The table has every number, and names tests that exist."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = (HERE / "README.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)
LATER = {11, 18}


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_is_said_to_hold_a_number_is_there(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (HERE.parents[1] / file).read_text(), re.MULTILINE)


def test_every_number_is_held_now_or_later() -> None:
    rows = {int(number): rest for number, rest in re.findall(r"^\| (\d+) (.*)$", TABLE, re.MULTILINE)}
    assert list(rows) == list(range(1, 26))
    assert {number for number, rest in rows.items() if "::" not in rest} == LATER
