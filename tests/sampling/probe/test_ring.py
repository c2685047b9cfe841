"""What one process writes, another reads whole and in order, as long as it keeps up."""

import struct
import subprocess
import sys
from pathlib import Path
from time import monotonic

from sampling.probe.ring import SLOTS, RingReader, RingWriter


def pair(folder: Path, fields: int = 2) -> tuple[RingReader, RingWriter]:
    reader = RingReader(folder / "ring", fields)
    return reader, RingWriter(folder / "ring", fields)


def test_a_new_ring_has_nothing(tmp_path: Path) -> None:
    assert pair(tmp_path)[0].read() == []


def test_records_come_once_and_in_order(tmp_path: Path) -> None:
    reader, writer = pair(tmp_path)
    writer.write(1, -2)
    writer.write(2**62, -(2**62))
    assert reader.read() == [(1, -2), (2**62, -(2**62))]
    writer.write(5, 6)
    assert reader.read() == [(5, 6)]
    assert reader.read() == []


def test_a_full_round_is_kept(tmp_path: Path) -> None:
    reader, writer = pair(tmp_path)
    for number in range(SLOTS):
        writer.write(number, 0)
    assert [first for first, _ in reader.read()] == list(range(SLOTS))


def test_a_reader_that_was_overtaken_goes_on_with_what_is_there(tmp_path: Path) -> None:
    reader, writer = pair(tmp_path)
    written = 3 * SLOTS + 10
    for number in range(written):
        writer.write(number, number)
    found = [first for first, _ in reader.read()]
    assert found == list(range(written - len(found), written))
    assert 0 < len(found) <= SLOTS
    writer.write(-1, -1)
    assert reader.read() == [(-1, -1)]


def test_a_record_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    reader, writer = pair(tmp_path)
    writer.write(1, 2)
    with (tmp_path / "ring").open("r+b") as file:
        file.write(struct.pack("=q", 0))
    assert reader.read() == []
    with (tmp_path / "ring").open("r+b") as file:
        file.write(struct.pack("=q", 1))
    assert reader.read() == [(1, 2)]


def test_no_record_is_torn_while_another_process_writes(tmp_path: Path) -> None:
    count = 200_000
    reader = RingReader(tmp_path / "ring", 8)
    script = (
        "import sys; from pathlib import Path; from sampling.probe.ring import RingWriter\n"
        "writer = RingWriter(Path(sys.argv[1]), 8)\n"
        f"for number in range({count}): writer.write(*[number] * 8)\n"
    )
    writing = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "ring")])
    try:
        found: list[tuple[int, ...]] = []
        deadline = monotonic() + 120
        while (not found or found[-1][0] < count - 1) and monotonic() < deadline:
            found += reader.read()
    finally:
        writing.wait(timeout=120)
    assert found[-1] == (count - 1,) * 8
    assert all(len(set(record)) == 1 for record in found)
    numbers = [record[0] for record in found]
    assert numbers == sorted(set(numbers))
