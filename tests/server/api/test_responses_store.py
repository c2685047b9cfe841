from typing import Any

import pytest

from server.api.responses_store import ResponseStore, StoredResponse
from server.errors import InvalidRequest, Overloaded, ResponseNotFound
from server.streaming.event_log import EventLog


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeRun:
    def __init__(self) -> None:
        self.log = EventLog(1 << 20)

    def cancel(self) -> None:
        pass

    def now(self) -> dict[str, Any]:
        return {"status": "in_progress", "output": []}


def keep(store: ResponseStore, name: str, size: int = 10, owner: str | None = None) -> StoredResponse:
    response = StoredResponse(name, owner, b"[]")
    text = {"id": f"msg_{name}", "type": "message", "text": "x" * size}
    store.end(response, {"id": name, "status": "completed", "output": [text]})
    return response


def has(store: ResponseStore, name: str, owner: str | None = None) -> bool:
    try:
        store.get(name, owner)
    except ResponseNotFound:
        return False
    return True


def test_the_least_recently_used_gives_way_to_a_new_one() -> None:
    store = ResponseStore(1 << 20, 3, 60)
    for name in "abc":
        keep(store, name)
    store.get("a", None)
    keep(store, "d")
    assert [has(store, name) for name in "abcd"] == [True, False, True, True]
    with pytest.raises(InvalidRequest):
        store.item("msg_b", None)
    assert store.item("msg_a", None)["type"] == "message"


def test_the_bytes_of_all_are_bounded() -> None:
    store = ResponseStore(10_000, 1000, 60)
    for number in range(100):
        keep(store, str(number), size=1000)
        assert store.size <= 10_000
    assert 3 <= len(store) < 10
    assert has(store, "99")


def test_one_larger_than_the_store_is_not_kept_and_takes_nobodys_place() -> None:
    store = ResponseStore(10_000, 1000, 60)
    keep(store, "a")
    keep(store, "b", size=20_000)
    assert (has(store, "a"), has(store, "b")) == (True, False)


def test_one_that_nobody_asks_for_expires() -> None:
    clock = Clock()
    store = ResponseStore(1 << 20, 10, 60, clock=clock)
    keep(store, "a")
    keep(store, "b")
    clock.now = 50
    store.get("b", None)
    clock.now = 70
    assert [has(store, name) for name in "ab"] == [False, True]
    assert len(store) == 1


def test_one_that_runs_neither_gives_way_nor_expires() -> None:
    clock = Clock()
    store = ResponseStore(1 << 20, 2, 60, clock=clock)
    running = [StoredResponse(name, None, b"[]", FakeRun()) for name in "ab"]
    for response in running:
        store.start(response)
    clock.now = 1000
    with pytest.raises(Overloaded):
        store.start(StoredResponse("c", None, b"[]", FakeRun()))
    assert has(store, "a") and has(store, "b")
    store.end(running[0], {"id": "a", "status": "completed", "output": []})
    store.start(StoredResponse("c", None, b"[]", FakeRun()))
    assert [has(store, name) for name in "abc"] == [False, True, True]


def test_the_events_of_those_that_run_count() -> None:
    store = ResponseStore(10_000, 100, 60)
    run = FakeRun()
    store.start(StoredResponse("a", None, b"[]", run))
    run.log.put(b"x" * 9000)
    with pytest.raises(Overloaded):
        store.start(StoredResponse("b", None, b"[]", FakeRun()))


def test_one_removed_while_it_runs_does_not_come_back_at_its_end() -> None:
    store = ResponseStore(1 << 20, 10, 60)
    response = StoredResponse("a", None, b"[]", FakeRun())
    store.start(response)
    store.remove(response)
    store.end(response, {"id": "a", "status": "cancelled", "output": []})
    assert len(store) == 0 and store.size == 0


def test_a_store_of_none_keeps_none() -> None:
    store = ResponseStore(1 << 20, 0, 60)
    keep(store, "a")
    assert not has(store, "a")


def test_another_owners_is_not_there() -> None:
    store = ResponseStore(1 << 20, 10, 60)
    keep(store, "a", owner="alice")
    assert [has(store, "a", owner) for owner in ("alice", "bob", None)] == [True, False, False]
    for owner in ("bob", None):
        with pytest.raises(InvalidRequest):
            store.item("msg_a", owner)
