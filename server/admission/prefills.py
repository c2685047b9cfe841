"""Prompts on their way through the engine, and how fast it computes them."""

from server.admission.forecast import Forecast
from server.admission.permits import Permit


class Prefills:
    """Requests that are in the engine and have no token yet. Times in seconds."""

    def __init__(self, forecast: Forecast) -> None:
        self.tokens = 0
        self._forecast = forecast
        self._open: set[Permit] = set()
        self._mark = 0.0  # where the prefilling that is not yet accounted for began

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, permit: Permit, now: float) -> None:
        if not self._open:
            self._mark = now
        self._open.add(permit)
        self.tokens += permit.prompt_tokens

    def first_token(self, permit: Permit, now: float) -> bool:
        """Whether it is news."""
        if permit not in self._open:
            return False
        self._forecast.prefilled(permit.prompt_tokens, now - self._mark)
        self._mark = now
        self.end(permit)
        return True

    def end(self, permit: Permit) -> None:
        """Harmless when it isn't there."""
        if permit in self._open:
            self._open.remove(permit)
            self.tokens -= permit.prompt_tokens
