"""Recorded arrivals: CSV or JSONL, told apart by their first character and by the names of their columns."""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import orjson

from bench.run.spec import SpecError

BLOCK_TOKENS = 512  # of a prompt, per entry of Mooncake's hash_ids


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request of a trace. `offset_s` counts from the first; equal `blocks` stand for equal parts of prompts."""

    offset_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Columns:
    """The names that a family of traces has for time and lengths; `second` is how many of its units make one."""

    time: str
    prompt: str
    output: str
    second: float = 1.0


# Azure's LLM inference traces (AzurePublicDataset, 2023 and 2024) have dates, BurstGPT (arXiv 2401.17644) has seconds,
# Mooncake (FAST'25) milliseconds. The last is ours.
FAMILIES = (
    Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    Columns("Timestamp", "Request tokens", "Response tokens"),
    Columns("timestamp", "input_length", "output_length", second=1000.0),
    Columns("timestamp", "prompt_tokens", "output_tokens"),
)


def read(path: Path, limit: int) -> list[Recorded]:
    """The first `limit` requests of a trace, in its order, which is that of time.

    Raises SpecError with the line of what can't be read, and for a file that has fewer.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            found = list(islice(_recorded(path, file), limit))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {error}") from None
    if len(found) < limit:
        raise SpecError(f"{path} has {len(found)} requests, and {limit} are asked for (those of the warm-up included)")
    return found


def _recorded(path: Path, file: TextIO) -> Iterator[Recorded]:
    first = latest = None
    for line, row in _rows(path, file):
        try:
            columns = _columns(row)
            seconds = _seconds(row[columns.time], columns.second)
            first = seconds if first is None else first
            if latest is not None and seconds < latest:
                raise ValueError("its time is before the previous one's")
            latest = seconds
            yield Recorded(seconds - first, _count(row[columns.prompt]), _count(row[columns.output]), _blocks(row))
        except ValueError as error:
            raise SpecError(f"{path}:{line}: {error}") from None


def _rows(path: Path, file: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """With their line numbers."""
    start = file.read(1)
    file.seek(0)
    if start == "{":
        yield from json_lines(path, file)
        return
    reader = csv.DictReader(file)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise SpecError(f"{path}:{reader.line_num}: {error}") from None


def json_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of JSONL with their line numbers; raises SpecError with that of what is none."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise SpecError(f"{path}:{number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise SpecError(f"{path}:{number}: not a JSON object")
        yield number, row


def _columns(row: Mapping[str, Any]) -> Columns:
    for columns in FAMILIES:
        if all(row.get(name) is not None for name in (columns.time, columns.prompt, columns.output)):
            return columns
    known = "; ".join(f"{one.time}, {one.prompt}, {one.output}" for one in FAMILIES)
    raise ValueError(f"not the columns of a known trace, which are {known}")


def _seconds(value: Any, unit: float) -> float:
    try:
        seconds = float(value) / unit
    except (TypeError, ValueError):
        return _date(str(value))
    if not math.isfinite(seconds):
        raise ValueError(f"not a time: {value}")
    return seconds


def _date(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"not a time: {text!r}") from None
    # Without a zone it is taken for UTC, which has no hour that comes twice.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _count(value: Any) -> int:
    """A request that failed when it was recorded has no tokens; it is sent with one."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"not a number of tokens: {value!r}") from None
    if not number.is_integer() or number < 0:
        raise ValueError(f"not a number of tokens: {value!r}")
    return max(int(number), 1)


def _blocks(row: Mapping[str, Any]) -> tuple[int, ...]:
    found = row.get("hash_ids") or ()
    if not isinstance(found, list | tuple) or not all(type(one) is int for one in found):
        raise ValueError("hash_ids is no list of whole numbers")
    return tuple(found)
