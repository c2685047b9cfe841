"""Bytes that must stay as they are. `GOLDEN=write pytest …` writes them anew: read the diff before you commit it."""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def normalised(data: bytes) -> bytes:
    """Without what differs from run to run: ids and times."""
    data = re.sub(rb'"id":"(chatcmpl|cmpl)-[0-9a-f]{32}"', rb'"id":"\1-ID"', data)
    data = re.sub(rb'"(resp|msg|rs|fc)_[0-9a-f]{32}"', rb'"\1_ID"', data)
    data = re.sub(rb'"call_[0-9a-f]{24}"', b'"call_ID"', data)
    return re.sub(rb'"(created|created_at|completed_at)":\d{10}\b', rb'"\1":TIME', data)


def check(name: str, data: bytes) -> None:
    path = FOLDER / name
    actual = normalised(data)
    if os.environ.get("GOLDEN") == "write":
        path.write_bytes(actual)
    assert actual == path.read_bytes()
