"""Log probabilities of tokens, and the tokens of an answer on their way out with the text they made."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot say; OpenAI's value."""


class TokenLogprob(NamedTuple):
    """A token, its log probability (nats, finite), its rank in the vocabulary (1 is likeliest), and the likeliest."""

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class Released:
    """Tokens whose text has left. `ids` has every token, `logprobs` those with text, `offsets` where these begin."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def extend(self, other: "Released") -> None:
        self.ids += other.ids
        self.logprobs += other.logprobs
        self.offsets += other.offsets


class TokenLog:
    """Holds tokens until their text is decided upon. Positions are characters of the answer's raw text.

    A token that completes no character leaves with the one that does.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TokenLogprob | None, int, int]] = deque()  # id, logprob, start, end
        self._unfinished: list[tuple[int, TokenLogprob | None]] = []
        self._length = 0

    def add(self, token_id: int, logprob: TokenLogprob | None, characters: int) -> None:
        """A token that completed `characters` of text."""
        self._unfinished.append((token_id, logprob))
        if characters:
            self.complete(characters)

    def complete(self, characters: int) -> None:
        """Text of the tokens that have none yet."""
        start, self._length = self._length, self._length + characters
        self._waiting += [(*token, start, self._length) for token in self._unfinished]
        self._unfinished.clear()

    def release(self, held: int) -> Released:
        """The tokens whose text ends before the last `held` characters."""
        decided = self._length - held
        released = Released()
        while self._waiting and self._waiting[0][3] <= decided:
            _put(released, *self._waiting.popleft()[:3])
        return released

    def close(self, hidden: int, silent: Sequence[int] = ()) -> Released:
        """All the rest, `silent` ids without text last; logprobs of those only that begin before the hidden tail."""
        visible = self._length - hidden
        released = Released()
        for token_id, logprob, start, _ in self._waiting:
            _put(released, token_id, logprob if start < visible else None, start)
        for token_id, logprob in self._unfinished:
            _put(released, token_id, None if hidden else logprob, self._length)
        released.ids += silent
        self._waiting.clear()
        self._unfinished.clear()
        return released


def _put(released: Released, token_id: int, logprob: TokenLogprob | None, start: int) -> None:
    released.ids.append(token_id)
    if logprob is not None:
        released.logprobs.append(logprob)
        released.offsets.append(start)
