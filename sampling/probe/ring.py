"""A ring of records in shared memory: one process writes, one reads, neither waits for the other.

Each slot is a sequence lock (Lameter, "Effective synchronization on Linux/NUMA systems", 2005): its number is 0 while
the slot is being written, so a reader that finds the same number before and after its copy has a whole record. This
leans on stores that others see in the order in which they were made, as x86 promises; elsewhere it has not been run.
"""

import mmap
import struct
from pathlib import Path

SLOTS = 1024  # a reader that falls behind by more loses the oldest records


class RingWriter:
    """Opens what `RingReader` made; raises OSError. Records are of `fields` signed 64-bit numbers."""

    def __init__(self, path: Path, fields: int) -> None:
        self._memory = _mapped(path, fields)
        self._record = struct.Struct(f"={fields}q")
        self._number = struct.Struct("=q")
        self._size = _slot_size(fields)
        self._written = 0

    def write(self, *values: int) -> None:
        at = self._written % SLOTS * self._size
        self._written += 1
        self._number.pack_into(self._memory, at, 0)
        self._record.pack_into(self._memory, at + 8, *values)
        self._number.pack_into(self._memory, at, self._written)


class RingReader:
    """Makes the file, and removes nothing: the folder's owner does. Raises OSError."""

    def __init__(self, path: Path, fields: int) -> None:
        with path.open("wb") as file:
            file.truncate(SLOTS * _slot_size(fields))
        self._memory = _mapped(path, fields)
        self._record = struct.Struct(f"={fields}q")
        self._number = struct.Struct("=q")
        self._size = _slot_size(fields)
        self._read = 0

    def read(self) -> list[tuple[int, ...]]:
        """All records since the last call, oldest first."""
        found = []
        while (record := self._next()) is not None:
            found.append(record)
        return found

    def _next(self) -> tuple[int, ...] | None:
        at = self._read % SLOTS * self._size
        number = self._numbered(at)
        if number <= self._read:  # 0 while it is being written
            return None
        record = self._record.unpack_from(self._memory, at + 8)
        if self._numbered(at) != number:  # overwritten meanwhile, a whole round later
            return self._next()
        self._read = number
        return record

    def _numbered(self, at: int) -> int:
        number: int = self._number.unpack_from(self._memory, at)[0]
        return number


def _slot_size(fields: int) -> int:
    return 8 * (1 + fields)


def _mapped(path: Path, fields: int) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), SLOTS * _slot_size(fields))
