"""What admission knows of a request that asks for a place in the engine."""

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from server.admission.permits import Permit
from server.errors import ClientGone, ServeError
from server.request import GenerationRequest


class Load(NamedTuple):
    """What requests will ask of the engine: prompt tokens to compute, sequences to hold a slot."""

    prompt_tokens: float = 0.0
    sequences: float = 0.0

    def plus(self, other: "Load", share: float = 1.0) -> "Load":
        return Load(self.prompt_tokens + share * other.prompt_tokens, self.sequences + share * other.sequences)


@dataclass(eq=False, slots=True)
class Ticket:
    """One request on its way in. Times are seconds of the event loop's clock."""

    request: GenerationRequest
    tokens: float  # prompt and expected answers: what it costs its caller's turn
    load: Load
    deadline: float
    arrived: float
    foreseen: float = 0.0  # wait in seconds
    granted: asyncio.Future[Permit] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def caller(self) -> str:
        return self.request.caller.name

    @property
    def rank(self) -> int:
        return self.request.caller.rank

    def refuse(self, error: ServeError) -> None:
        """Ends the wait; harmless after its end."""
        if not self.granted.done():
            self.granted.set_exception(error)

    def withdraw(self) -> None:
        """Nobody waits for it any more."""
        self.refuse(ClientGone())
