"""Who goes next: priority class, then deficit round-robin by tokens over callers, then deadline within a caller.

Deficit round-robin after Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin" (SIGCOMM 1995).
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import count
from math import ceil

from server.admission.ticket import Load, Ticket

QUANTUM = 128
"""Tokens a caller may spend per turn: a short request's, since a newcomer waits for a turn of each other caller."""

SPARE = 16
"""Removed tickets that any line may keep."""


class _Flow:
    """One caller's waiting requests of one class, earliest deadline first."""

    def __init__(self) -> None:
        self.deficit: float = QUANTUM  # of its first turn
        self.tokens = 0.0
        self.load = Load()
        self.tickets: dict[Ticket, None] = {}
        self.heap: list[tuple[float, int, Ticket]] = []

    @property
    def head(self) -> Ticket:
        while self.heap[0][2] not in self.tickets:  # removed from the middle
            heapq.heappop(self.heap)
        return self.heap[0][2]

    @property
    def last(self) -> Ticket:
        """The latest to have come."""
        return next(reversed(self.tickets))

    def tidy(self) -> None:
        """Removed tickets with late deadlines would never come up while the line lasts: drop them once they prevail."""
        if len(self.heap) > 2 * len(self.tickets) + SPARE:
            self.heap = [entry for entry in self.heap if entry[2] in self.tickets]
            heapq.heapify(self.heap)


class FairQueue:
    """Tickets in the order they shall be served. Nothing here waits, or knows of slots."""

    def __init__(self) -> None:
        self.load = Load()  # of all that wait
        self._classes: dict[int, OrderedDict[str, _Flow]] = {}
        self._waiting: dict[Ticket, None] = {}  # in order of arrival
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> Ticket | None:
        return next(iter(self._waiting), None)

    @property
    def waiting(self) -> tuple[Ticket, ...]:
        return tuple(self._waiting)

    def push(self, ticket: Ticket) -> None:
        flow = self._classes.setdefault(ticket.rank, OrderedDict()).setdefault(ticket.caller, _Flow())
        heapq.heappush(flow.heap, (ticket.deadline, next(self._numbers), ticket))
        flow.tickets[ticket] = None
        flow.tokens += ticket.tokens
        flow.load = flow.load.plus(ticket.load)
        self.load = self.load.plus(ticket.load)
        self._waiting[ticket] = None

    def peek(self, passed_over: Callable[[str], bool] = lambda caller: False) -> Ticket | None:
        """The next to be served, of callers not `passed_over`; the same until something is pushed, taken or removed."""
        for rank in sorted(self._classes):
            flows = self._classes[rank]
            chosen = {caller: flow for caller, flow in flows.items() if not passed_over(caller)}
            if chosen:
                return _next(flows, chosen)
        return None

    def waits(self, caller: str, rank: int) -> bool:
        """Whether that caller has anything in that class's line."""
        return caller in self._classes.get(rank, ())

    def take(self, ticket: Ticket) -> None:
        """Serve what `peek` showed: its caller pays for it."""
        self._classes[ticket.rank][ticket.caller].deficit -= ticket.tokens
        self.remove(ticket)

    def remove(self, ticket: Ticket) -> None:
        """Forget a ticket, wherever it stands; harmless when it isn't there."""
        if ticket not in self._waiting:
            return
        del self._waiting[ticket]
        flows = self._classes[ticket.rank]
        flow = flows[ticket.caller]
        del flow.tickets[ticket]
        flow.tidy()
        flow.tokens -= ticket.tokens
        flow.load = flow.load.plus(ticket.load, -1)
        self.load = self.load.plus(ticket.load, -1) if self._waiting else Load()
        if not flow.tickets:  # who has nothing waiting keeps no deficit
            del flows[ticket.caller]
            if not flows:
                del self._classes[ticket.rank]

    def ahead(self, caller: str, rank: int, tokens: float) -> Load:
        """What will be served before a request of that caller, class and size that comes now.

        All of higher classes and of its own caller; of each other caller as much as round-robin serves meanwhile.
        """
        load = Load()
        for other_rank, flows in self._classes.items():
            if other_rank < rank:
                for flow in flows.values():
                    load = load.plus(flow.load)
        rivals = self._classes.get(rank, OrderedDict())
        own = rivals.get(caller)
        mine = tokens + (own.tokens if own is not None else 0.0)
        for flow in rivals.values():
            load = load.plus(flow.load, 1.0 if flow is own else min(1.0, mine / flow.tokens))
        return load

    def victim(self, caller: str, rank: int) -> Ticket | None:
        """Whose place a request of that caller and class may take in a full queue: the longest line's last.

        Of the lowest class; in the request's own class only of another caller who has more waiting. (McKenney,
        "Stochastic Fairness Queueing", INFOCOM 1990, drops from the longest line too.)
        """
        if not self._waiting:
            return None
        lowest = max(self._classes)
        flows = self._classes[lowest]
        longest, flow = max(flows.items(), key=lambda item: item[1].tokens)
        own = flows.get(caller)
        mine = own.tokens if own is not None else 0.0
        if lowest < rank or (lowest == rank and (longest == caller or flow.tokens <= mine)):
            return None
        return flow.last


def _next(flows: OrderedDict[str, _Flow], chosen: Mapping[str, _Flow]) -> Ticket:
    """Whose turn it is among the `chosen` ones of `flows`, in whose order turns go round."""
    while True:
        for caller in [caller for caller in flows if caller in chosen]:
            flow, head = chosen[caller], chosen[caller].head
            # What was saved up for a larger request that has left, or been overtaken, must not make a flood.
            flow.deficit = min(flow.deficit, head.tokens + QUANTUM)
            if head.tokens <= flow.deficit:
                return head
            flow.deficit += QUANTUM
            flows.move_to_end(caller)
        _skip_rounds(chosen)


def _skip_rounds(flows: Mapping[str, _Flow]) -> None:
    """Give as many turns as nobody could use at once: a request of a million tokens needs thousands of them."""
    rounds = min(ceil((flow.head.tokens - flow.deficit) / QUANTUM) for flow in flows.values())
    for flow in flows.values():
        flow.deficit += max(rounds, 0) * QUANTUM
