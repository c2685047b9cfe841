"""The table of complaints names tests that exist."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (HERE / "README.md").read_text())


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_is_said_to_hold_a_row_is_there(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (HERE.parents[1] / file).read_text(), re.MULTILINE)


def test_the_table_was_read() -> None:
    assert len(NAMED) > 25
