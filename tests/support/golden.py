"""Bytes that must stay as they are. `GOLDEN=write pytest …` writes them anew: read the diff before you commit it."""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def normalised(data: bytes) -> bytes:
    """Without what differs from run to run: ids and times."""
    data = re.sub(rb'"id":"(chatcmpl|cmpl)-[0-9a-f]{32}"', rb'"id":"\1-ID"', data)
    return re.sub(rb'"created":\d{10}\b', b'"created":TIME', data)


def check(name: str, data: bytes) -> None:
    path = FOLDER / name
    actual = normalised(data)
    if os.environ.get("GOLDEN") == "write":
        path.write_bytes(actual)
    assert actual == path.read_bytes()
