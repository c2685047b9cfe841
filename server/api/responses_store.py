"""Responses that can be asked for again, bounded in bytes and number; the least recently used give way.

Those that still run are never evicted: they count, and where only they are left no more of them are taken.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

import orjson

from server.errors import InvalidRequest, Overloaded, ResponseNotFound
from server.streaming.event_log import EventLog

_OVERHEAD = 1024  # of a stored response beside its bytes

CONTINUABLE = ("completed", "incomplete")


class Run(Protocol):
    """What generates a response in the background, or has done so."""

    log: EventLog

    def cancel(self) -> None:
        """Harmless after the end."""
        ...

    def now(self) -> dict[str, Any]:
        """The response object while it runs."""
        ...


class StoredResponse:
    """`owner` is whose key it was made with. `input` has the whole conversation before the answer, as JSON."""

    __slots__ = ("_final", "id", "input", "item_ids", "owner", "run", "status", "used")

    def __init__(self, response_id: str, owner: str | None, items: bytes, run: Run | None = None) -> None:
        self.id = response_id
        self.owner = owner
        self.input = items
        self.run = run
        self.status = "queued"
        self.item_ids: list[str] = []
        self.used = 0.0
        self._final = b""

    @property
    def ended(self) -> bool:
        return bool(self._final)

    @property
    def size(self) -> int:
        return _OVERHEAD + len(self.input) + len(self._final) + (self.run.log.size if self.run else 0)

    @property
    def body(self) -> bytes:
        """The response object as JSON."""
        return self._final or (orjson.dumps(self.run.now()) if self.run else b"null")

    def end(self, final: dict[str, Any]) -> None:
        self.status = final["status"]
        self.item_ids = [item["id"] for item in final["output"]]
        self._final = orjson.dumps(final)

    def input_items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = orjson.loads(self.input)
        return items

    def output_items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = orjson.loads(self.body)["output"]
        return items


class ResponseStore:
    """`max_idle`: seconds after its last use that a response is kept. Another owner's responses don't exist."""

    def __init__(
        self, max_bytes: int, max_count: int, max_idle: float, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._max_idle = max_idle
        self._clock = clock
        self._running: dict[str, StoredResponse] = {}
        self._ended: OrderedDict[str, StoredResponse] = OrderedDict()  # the least recently used first
        self._sizes: dict[str, int] = {}  # of the ended ones
        self._bytes = 0  # their sum
        self._items: dict[str, StoredResponse] = {}  # by the ids of output items

    def __len__(self) -> int:
        return len(self._running) + len(self._ended)

    @property
    def size(self) -> int:
        return self._bytes + sum(response.size for response in self._running.values())

    def start(self, response: StoredResponse) -> None:
        """Take one that runs; raises Overloaded when there is no room beside the others that do."""
        self._make_room(response.size)
        if len(self) >= self._max_count or self.size + response.size > self._max_bytes:
            raise Overloaded("No more responses can run in the background at the moment.")
        self._running[response.id] = response

    def end(self, response: StoredResponse, final: dict[str, Any]) -> None:
        """`response` has become `final`. One that was removed while it ran stays so, and one too large isn't kept."""
        known = self._running.pop(response.id, None)
        response.end(final)
        if known is None and response.run is not None:
            return
        size = response.size
        if size > self._max_bytes or not self._max_count:
            return
        self._make_room(size)
        response.used = self._clock()
        self._ended[response.id] = response
        self._sizes[response.id] = size
        self._bytes += size
        self._items.update(dict.fromkeys(response.item_ids, response))

    def get(self, response_id: str, owner: str | None, *, param: str | None = None) -> StoredResponse:
        """Raises ResponseNotFound."""
        self._expire()
        response = self._running.get(response_id) or self._ended.get(response_id)
        if response is None or response.owner != owner:
            raise ResponseNotFound(param=param)
        self._use(response)
        return response

    def item(self, item_id: str, owner: str | None) -> dict[str, Any]:
        """An output item by its id; raises InvalidRequest."""
        self._expire()
        response = self._items.get(item_id)
        if response is None or response.owner != owner:
            raise InvalidRequest(f"input: no stored item has the id `{item_id[:100]}`.", param="input")
        self._use(response)
        return next(item for item in response.output_items() if item["id"] == item_id)

    def conversation(self, response_id: str, owner: str | None) -> list[dict[str, Any]]:
        """What a turn after this response goes on from; raises ResponseNotFound or InvalidRequest."""
        param = "previous_response_id"
        response = self.get(response_id, owner, param=param)
        if response.status not in CONTINUABLE:
            raise InvalidRequest(f"previous_response_id: that response is {response.status}.", param=param)
        return response.input_items() + response.output_items()

    def remove(self, response: StoredResponse) -> None:
        self._running.pop(response.id, None)
        if response.id in self._ended:
            self._forget(response.id)

    def _use(self, response: StoredResponse) -> None:
        if response.id in self._ended:
            response.used = self._clock()
            self._ended.move_to_end(response.id)

    def _expire(self) -> None:
        oldest = self._clock() - self._max_idle
        while self._ended and next(iter(self._ended.values())).used < oldest:
            self._forget(next(iter(self._ended)))

    def _make_room(self, size: int) -> None:
        self._expire()
        while self._ended and (len(self) >= self._max_count or self.size + size > self._max_bytes):
            self._forget(next(iter(self._ended)))

    def _forget(self, response_id: str) -> None:
        response = self._ended.pop(response_id)
        self._bytes -= self._sizes.pop(response_id)
        for item_id in response.item_ids:
            self._items.pop(item_id, None)
