"""What an entry looks like. What becomes of those that cannot be written: tests/reliability/test_log.py."""

import json
from decimal import Decimal

from server.telemetry.log import _json


def test_an_entry_is_one_line_of_json() -> None:
    line = _json({"event": "a\nb", "n": 1, "ratio": Decimal("0.5")}, str)
    assert "\n" not in line
    assert json.loads(line) == {"event": "a\nb", "n": 1, "ratio": "0.5"}


def test_text_that_utf_8_cannot_hold_is_escaped() -> None:
    assert json.loads(_json({"event": "half \ud83d"}, str)) == {"event": "half \ud83d"}
