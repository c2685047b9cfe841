"""DRY written straight from its definition: every suffix is looked for at every place of the context."""

from collections.abc import Sequence
from math import floor, log

import numpy as np


def penalties(
    context: Sequence[int],
    vocabulary: int,
    multiplier: float,
    base: float,
    allowed_length: int,
    breakers: Sequence[tuple[int, ...]] = (),
) -> np.ndarray:
    """What each token of the vocabulary loses, float64 [vocabulary]."""
    lost = np.zeros(vocabulary)
    limit = tokens_behind_breaker(context, breakers)
    for token in range(vocabulary):
        length = repeated_before(context, token, limit)
        if length >= allowed_length and (token,) not in breakers:
            exponent = length - allowed_length
            if base > 1.000001:
                exponent = min(exponent, floor(88.7228391 / log(base)))
            lost[token] = multiplier * np.float64(base) ** exponent
    return lost


def repeated_before(context: Sequence[int], token: int, limit: int) -> int:
    """How long a suffix of the context, `limit` tokens at most, the token has followed already; 0 if none."""
    for length in range(limit, 0, -1):
        continued = [*context[len(context) - length :], token]
        places = range(len(context) - length)
        if any(list(context[place : place + length + 1]) == continued for place in places):
            return length
    return 0


def tokens_behind_breaker(context: Sequence[int], breakers: Sequence[tuple[int, ...]]) -> int:
    """From the end backwards to the first token that begins a complete breaker, and the longest one it begins."""
    for begin in reversed(range(len(context))):
        ends = [begin + len(breaker) for breaker in breakers if tuple(context[begin : begin + len(breaker)]) == breaker]
        if ends:
            return len(context) - max(ends)
    return len(context)
