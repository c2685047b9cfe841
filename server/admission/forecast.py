"""How long requests will wait, from how fast earlier ones went through.

Every figure is an exponentially weighted mean, so that it follows the machine. Before the first measurement nothing is
foreseen (0 s), and only the hard bounds of admission hold.
"""

from math import exp

from server.admission.ticket import Load

MEMORY_S = 10.0
"""Seconds of prefilling after which a measurement of its rate counts 1/e."""

NEWEST = 0.1
"""Weight of the newest sample in the other means."""

MAX_CORRECTION = 4.0

BROKEN_WAITS = 0.005
"""The share of the requests let into the queue whose wait may be in vain: such a one should have been told at once."""

WIDEN = 1.25
NARROW = 1 - (WIDEN - 1) * BROKEN_WAITS / (1 - BROKEN_WAITS)
MAX_MARGIN = 10.0


class Mean:
    """An exponentially weighted mean of samples; `initial` until there is one."""

    __slots__ = ("_known", "value")

    def __init__(self, initial: float) -> None:
        self.value = initial
        self._known = False

    def add(self, sample: float) -> None:
        self.value = self.value + NEWEST * (sample - self.value) if self._known else sample
        self._known = True


class Forecast:
    """Told what becomes of each request; asked for waits. Times in seconds."""

    def __init__(self) -> None:
        self._prefill_tokens = 0.0
        self._prefill_s = 0.0
        self._hold = Mean(0.0)
        self._answers: dict[int, Mean] = {}
        self._bytes_per_token = Mean(4.0)
        self._correction = Mean(1.0)
        self.margin = 1.0  # by which a foreseen wait must be shorter than what is borne

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second while there are prompts to compute, decoding beside them included; 0: unknown."""
        return self._prefill_tokens / self._prefill_s if self._prefill_s > 0 else 0.0

    @property
    def hold_s(self) -> float:
        """How long a sequence keeps its slot: prefill and decode at the present load."""
        return self._hold.value

    def prompt_tokens(self, body_bytes: int) -> int:
        """What a request body of that size will make of prompt, before anybody has tokenized it."""
        return max(int(body_bytes / self._bytes_per_token.value), 1)

    def answer_tokens(self, max_tokens: int) -> float:
        """How long an answer with about that limit has been lately."""
        seen = self._answers.get(max_tokens.bit_length())
        return float(max_tokens) if seen is None else min(float(max_tokens), seen.value)

    def wait(self, ahead: Load, slots: int) -> float:
        """Until `ahead.prompt_tokens` are computed and `ahead.sequences` of those in `slots` have ended."""
        prefill_s = ahead.prompt_tokens / self.prefill_rate if self.prefill_rate else 0.0
        slots_s = ahead.sequences * self.hold_s / slots
        return max(prefill_s, slots_s, 0.0) * self._correction.value

    def tokenized(self, body_bytes: int, prompt_tokens: int) -> None:
        self._bytes_per_token.add(body_bytes / max(prompt_tokens, 1))

    def prefilled(self, prompt_tokens: int, busy_s: float) -> None:
        """A request has its first token, `busy_s` of prefilling after the one before had."""
        kept = exp(-busy_s / MEMORY_S)
        self._prefill_tokens = self._prefill_tokens * kept + prompt_tokens
        self._prefill_s = self._prefill_s * kept + busy_s

    def held(self, seconds: float) -> None:
        """A sequence has given its slot back."""
        self._hold.add(seconds)

    def answered(self, max_tokens: int, output_tokens: int) -> None:
        """A choice has ended by itself or at its limit."""
        self._answers.setdefault(max_tokens.bit_length(), Mean(0.0)).add(output_tokens)

    def waited(self, foreseen_s: float, real_s: float, *, in_vain: bool = False) -> None:
        """A request has left the queue: later forecasts are corrected by how wrong its own was.

        The margin moves by the weighted up-down method (see controller.py) towards one wait `in_vain` in 200.
        """
        if in_vain:
            self.margin = min(self.margin * WIDEN, MAX_MARGIN)
        elif foreseen_s > 0:
            self.margin = max(self.margin * NARROW, 1.0)
        if foreseen_s > 0.05:
            ratio = real_s / foreseen_s * self._correction.value
            self._correction.add(min(max(ratio, 1 / MAX_CORRECTION), MAX_CORRECTION))
