"""DRY ("don't repeat yourself"): the longer the repetition that a token would continue, the larger its penalty.

From text-generation-webui (https://github.com/oobabooga/text-generation-webui/pull/5677), with llama.cpp's sequence
breakers and bounds (https://github.com/ggml-org/llama.cpp/pull/9702), which looks at the whole context
(`dry_penalty_last_n` -1).
"""

from collections.abc import Mapping
from functools import lru_cache
from math import log

import torch

from sampling.processors.base import Group, Row, Sampler
from sampling.processors.suffixes import Suffixes
from sampling.shaping import Shaping

FARTHEST = 256  # tokens beyond the allowed length that a repetition is followed
FLOAT32_MAX_LOG = 88.7228391
FLAT_BASE = 1.000001  # up to here llama.cpp takes the base for 1 and leaves the exponent alone
HEAVIEST = 1e30  # a penalty that no logit survives, and that any temperature leaves finite
SHARED_BREAKERS = 16  # sets of breakers kept for the next requests that have the same

Sequences = tuple[tuple[int, ...], ...]


class Dry(Sampler):
    """logit[c] -= multiplier * base ** (n - allowed_length), where n >= allowed_length.

    n is the length of the longest suffix of prompt and output that also occurs earlier, there followed by c. It may
    overlap its earlier occurrence, but not reach back across a breaker: the nearest complete one. A token that is a
    breaker by itself is never penalised.

    The exponent ends where base ** exponent leaves float32, as in llama.cpp, and at FARTHEST, so that a step looks at
    no more than FARTHEST + 1 suffixes. FARTHEST comes first for bases below 1.41: there a longer repetition counts as
    one of this length.
    """

    def wanted(self, shaping: Shaping) -> bool:
        return shaping.dry_multiplier != 0 and shaping.dry_base >= 1

    def apply(self, logits: torch.Tensor, group: Group) -> torch.Tensor:
        rows: list[int] = []
        tokens: list[int] = []
        amounts: list[float] = []
        for place, history in enumerate(group.states(Dry, _History)):
            penalties = history.penalties(group.rows[place])
            rows += [place] * len(penalties)
            tokens += penalties.keys()
            amounts += penalties.values()
        if rows:
            where = torch.tensor([rows, tokens], device=logits.device)
            amount = torch.tensor(amounts, dtype=logits.dtype, device=logits.device)
            logits[where[0], where[1]] -= amount
        return logits


class _History:
    """A request's repetitions, kept up to date token by token."""

    def __init__(self, row: Row) -> None:
        shaping = row.shaping
        self._multiplier = shaping.dry_multiplier
        self._base = shaping.dry_base
        self._allowed = shaping.dry_allowed_length
        self._seen = 0
        self._suffixes = Suffixes(self._allowed + _largest_exponent(self._base))
        self._breakers = _Breakers(shaping.dry_sequence_breakers)

    def penalties(self, row: Row) -> dict[int, float]:
        """What to take off the logit of each token that would continue a repetition."""
        self._read(row.tokens_from(self._seen))
        return {
            token: min(self._multiplier * self._base ** (length - self._allowed), HEAVIEST)
            for token, length in self._continued().items()
            if token not in self._breakers
        }

    def _read(self, tokens: list[int]) -> None:
        for token in tokens:
            self._suffixes.append(token)
            if self._breakers.end_at(token):
                self._suffixes.cut()
        self._seen += len(tokens)

    def _continued(self) -> dict[int, int]:
        """The length n of each token that has one."""
        lengths: dict[int, int] = {}
        for length, followers in self._suffixes.walk(self._allowed):
            if len(followers) > len(lengths):  # otherwise they are the same
                lengths = dict.fromkeys(followers, length) | lengths
        return lengths


class _Breakers:
    """The nearest breaker, as llama.cpp finds it: of those complete the one that begins last, then the longest.

    So one that lies within another hides the other's end.
    """

    def __init__(self, sequences: Sequences) -> None:
        self._by_length = _by_length(sequences)
        self._longest = max(self._by_length, default=1)
        self._recent: tuple[int, ...] = ()
        self._count = 0
        self._begin = 0

    def __contains__(self, token: int) -> bool:
        return (token,) in self._by_length.get(1, ())

    def end_at(self, token: int) -> bool:
        """Take in the next token; whether the nearest breaker now ends with it."""
        self._count += 1
        self._recent = (*self._recent, token)[-self._longest :]
        for length, sequences in self._by_length.items():
            begin = self._count - length
            if begin < self._begin:
                break
            if self._recent[-length:] in sequences:
                self._begin = begin
                return True
        return False


@lru_cache(maxsize=SHARED_BREAKERS)
def _by_length(sequences: Sequences) -> Mapping[int, frozenset[tuple[int, ...]]]:
    """Shortest first."""
    lengths = sorted({len(sequence) for sequence in sequences})
    return {length: frozenset(sequence for sequence in sequences if len(sequence) == length) for length in lengths}


def _largest_exponent(base: float) -> int:
    return min(FARTHEST, int(FLOAT32_MAX_LOG / log(base))) if base > FLAT_BASE else FARTHEST
