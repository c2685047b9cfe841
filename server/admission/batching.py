"""Whether prompts are held back for a moment so that they enter the engine together.

The knobs are Triton's (max_queue_delay, preferred_batch_size), with what they can mean under continuous batching: the
batch is made anew each step, so only the entry of prefills can be delayed. Fewer decode steps are then interrupted by a
prefill, for a time to first token that is longer by at most the delay.
"""

from server.admission.permits import Slots
from server.admission.queue import FairQueue


class Batching:
    """`max_delay` in seconds, 0: off; held prompts of `max_tokens` in all fill an engine step and go at once."""

    def __init__(self, max_delay: float, preferred_sizes: tuple[int, ...], max_tokens: int) -> None:
        self._max_delay = max_delay
        self._size = min(preferred_sizes, default=None)
        self._max_tokens = max_tokens

    def hold(self, queue: FairQueue, slots: Slots, now: float) -> float:
        """Seconds for which what waits is held back; 0: it goes now. Never while the engine is idle."""
        oldest = queue.oldest
        if not self._max_delay or oldest is None or not slots.in_use or self._is_full(queue, slots):
            return 0.0
        return max(oldest.arrived + self._max_delay - now, 0.0)

    def _is_full(self, queue: FairQueue, slots: Slots) -> bool:
        held = queue.load
        return (
            (self._size is not None and held.sequences >= self._size)
            or held.sequences >= slots.free  # nobody else could join
            or held.prompt_tokens >= self._max_tokens
        )
