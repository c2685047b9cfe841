"""Requests, tickets, callers and admissions as small as a test needs them."""

import asyncio
from typing import Any

from sampling.params import SamplingParams
from server.admission.admission import Admission
from server.admission.ticket import Load, Ticket
from server.config import AdmissionSettings
from server.errors import ServeError
from server.request import NORMAL, Caller, GenerationRequest
from tests.support.waiting import DEADLINE_S

PLENTY = 60.0  # seconds


class Owner(Caller):
    def __init__(self, owner: str | None = None, rank: int = NORMAL, timeout: float | None = None) -> None:
        self.owner, self.rank, self.timeout = owner, rank, timeout


class Payer(Owner):
    """Remembers what was set aside and what was paid in the end."""

    def __init__(self, owner: str = "payer") -> None:
        super().__init__(owner)
        self.reserved: list[int] = []
        self.settled: list[tuple[int, int]] = []

    async def reserve(self, tokens: int) -> None:
        self.reserved.append(tokens)

    async def settle(self, reserved: int, used: int) -> None:
        self.settled.append((reserved, used))


def request_of(
    caller: str = "a", prompt_tokens: int = 1, *, rank: int = NORMAL, n: int = 1, max_tokens: int = 1
) -> GenerationRequest:
    params = SamplingParams(max_tokens=max_tokens)
    return GenerationRequest("request", [range(prompt_tokens)], params, n=n, caller=Owner(caller, rank))


def ticket_of(
    caller: str = "a", tokens: int = 1, *, rank: int = NORMAL, n: int = 1, deadline: float = 0.0, arrived: float = 0.0
) -> Ticket:
    """All of its tokens are prompt tokens."""
    return Ticket(request_of(caller, tokens, rank=rank, n=n), tokens, Load(tokens, n), deadline, arrived)


def opened(slots: int = 1, *, batch_tokens: int = 10_000, max_wait: float = 10.0, **settings: Any) -> Admission:
    admission = Admission(AdmissionSettings(max_batch_size=slots, **settings), max_wait=max_wait)
    admission.open(max_num_seqs=64, max_batch_tokens=batch_tokens)
    return admission


def slow(admission: Admission, hold_s: float) -> Admission:
    """Sequences are known to keep their slots for so long."""
    for _ in range(100):
        admission.forecast.held(hold_s)
    return admission


def give_back(*tickets: Ticket) -> None:
    for ticket in tickets:
        ticket.granted.result().release_all()


def waits(ticket: Ticket) -> bool:
    return not ticket.granted.done()


async def outcome(admission: Admission, ticket: Ticket) -> ServeError | None:
    """What ends the ticket's wait; None for a permit."""
    try:
        async with asyncio.timeout(DEADLINE_S), admission.permit(ticket):
            return None
    except ServeError as error:
        return error


def entered(tickets: list[Ticket]) -> int:
    return sum(not waits(ticket) for ticket in tickets)
