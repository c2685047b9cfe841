"""Permission to use the engine: taken before a request is submitted, given back when its stream has ended."""

from collections.abc import Iterator
from contextlib import contextmanager

from server.errors import Overloaded, ShuttingDown


class Permits:
    """At most `limit` sequences at once; one more is refused rather than queued. Closed while draining."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.in_use = 0
        self.closed = False

    @contextmanager
    def acquire(self, sequences: int) -> Iterator[None]:
        """Hold `sequences` permits; raises ShuttingDown or Overloaded at once instead of waiting."""
        if self.closed:
            raise ShuttingDown
        if self.in_use + sequences > self._limit:
            raise Overloaded
        self.in_use += sequences
        try:
            yield
        finally:
            self.in_use -= sequences
