import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import PositionEvicted
from server.streaming import event_log
from server.streaming.event_log import EventLog


def event(number: int, size: int = 0) -> bytes:
    return b"data: %d%b\n\n" % (number, b"." * size)


@given(st.lists(st.integers(1, 4), max_size=20), st.integers(0, 60))
def test_whatever_was_put_together_a_read_begins_where_it_is_told(puts: list[int], position: int) -> None:
    log = EventLog(1 << 20)
    number = 0
    for count in puts:
        log.put(b"".join(event(number + k) for k in range(count)))
        number += count
    assert log.next == number
    assert log.read(position) == [event(k) for k in range(position, number)]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=50))
def test_the_ring_is_bounded_and_always_holds_what_was_put_last(sizes: list[int]) -> None:
    log = EventLog(500)
    for number, size in enumerate(sizes):
        log.put(event(number, size))
        assert log.size <= 500
    assert log.read(log.next - 1) == [event(len(sizes) - 1, sizes[-1])]
    assert b"".join(log.read(log.first)).count(b"\n\n") == log.next - log.first


def test_the_last_event_is_held_even_if_it_is_larger_than_the_ring() -> None:
    log = EventLog(100)
    log.put(event(0, 50))
    log.put(event(1, 5000))
    assert log.read(1) == [event(1, 5000)]


def test_a_position_that_has_left_the_ring_is_an_error_that_names_the_first_one_held() -> None:
    log = EventLog(100)
    for number in range(20):
        log.put(event(number, 30))
    with pytest.raises(PositionEvicted, match=f"number {log.first}"):
        log.read(log.first - 1)
    assert log.read(20) == []
    assert log.read(99) == []


def test_a_read_gives_the_ring_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "READ_BYTES", 30)
    log = EventLog(1 << 20)
    for number in range(10):
        log.put(event(number))
    position, read = 0, []
    while events := log.read(position):
        assert len(events) < 10
        read += events
        position += len(events)
    assert read == [event(number) for number in range(10)]


def test_readers_are_told_of_what_is_put_and_of_the_end() -> None:
    told: list[str] = []
    log = EventLog(100, on_close=lambda: told.append("closed"))
    readers = [asyncio.Event(), asyncio.Event()]
    log.readers.update(readers)
    log.put(event(0))
    assert all(reader.is_set() for reader in readers)
    readers[0].clear()
    log.close()
    assert readers[0].is_set()
    assert told == ["closed"]
