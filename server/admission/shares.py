"""A few slots that a flood cannot take: who calls seldom shall not wait for one of a busy caller's requests to end.

Round-robin alone gives a newcomer the next slot that comes free. On an engine whose requests take seconds, that may be
longer than all the rest of its time to first token.
"""

from collections import Counter, OrderedDict

from server.admission.permits import Slots

RECENT_S = 60.0
"""How long a caller counts after its latest request."""

RESERVED = 16
"""One slot in so many is kept for callers below their share; of four slots and more, at least one."""


class Shares:
    """Who has how many slots, and who has called lately. Alone, a caller may have them all. Times in seconds."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self._called: OrderedDict[str, float] = OrderedDict()  # the longest ago first

    def call(self, caller: str, now: float) -> None:
        self._called[caller] = now
        self._called.move_to_end(caller)
        while now - next(iter(self._called.values())) > RECENT_S:
            self._called.popitem(last=False)

    def reserve(self, slots: Slots) -> int:
        return max(1, slots.limit // RESERVED) if slots.limit >= 4 and len(self._called) > 1 else 0

    def closed_to(self, caller: str, slots: Slots) -> bool:
        """Whether what is free is kept for others: `caller` has its equal share already."""
        reserve = self.reserve(slots)
        return slots.free <= reserve and bool(reserve) and self.held[caller] * len(self._called) >= slots.limit

    def take(self, caller: str, slots: int) -> None:
        self.held[caller] += slots

    def give(self, caller: str, slots: int) -> None:
        self.held[caller] -= slots
        if not self.held[caller]:
            del self.held[caller]
