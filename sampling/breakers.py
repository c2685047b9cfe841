"""DRY's sequence breakers as token ids: every way in which a breaker's text may turn up in tokens.

As llama.cpp sees it (https://github.com/ggml-org/llama.cpp/pull/9702): a token that holds the whole breaker, or one
that ends with its beginning, followed by the tokens of the rest.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain

from tokenizers import Tokenizer

from sampling.detokenizer import CACHED_TOKENIZERS, token_bytes

DEFAULT_BREAKERS = ("\n", ":", '"', "*")
LONGEST_TAIL = 20  # token ids
CACHED_BREAKERS = 32
CACHED_SETS = 8

_END = b"\xff"  # in no UTF-8

Sequences = tuple[tuple[int, ...], ...]


def breaker_sequences(tokenizer: Tokenizer, breakers: Sequence[str]) -> Sequences:
    """The token id sequences of these breakers, none of them empty: `Shaping.dry_sequence_breakers`.

    The first breaker of a tokenizer costs a look at its whole vocabulary (half a second for 150,000 tokens), later
    ones milliseconds; the same breakers give the same object.
    """
    return _set_of_sequences(tokenizer, tuple(breakers))


@lru_cache(maxsize=CACHED_SETS)
def _set_of_sequences(tokenizer: Tokenizer, breakers: tuple[str, ...]) -> Sequences:
    sequences = chain.from_iterable(_sequences(tokenizer, breaker) for breaker in breakers)
    return tuple(dict.fromkeys(sequences))


@lru_cache(maxsize=CACHED_BREAKERS)
def _sequences(tokenizer: Tokenizer, breaker: str) -> Sequences:
    vocabulary = _vocabulary(tokenizer)
    text = breaker.encode()
    whole = vocabulary.holding(text)
    sequences: list[tuple[int, ...]] = [(token_id,) for token_id in whole]
    known = set(whole)
    for cut in range(1, len(text)):
        heads = [head for head in vocabulary.holding(text[:cut] + _END) if head not in known]
        tail = _tail(tokenizer, text[cut:]) if heads else ()
        sequences += [(head, *tail) for head in heads if tail]
    return tuple(sequences)


def _tail(tokenizer: Tokenizer, rest: bytes) -> tuple[int, ...]:
    """The rest of a breaker in tokens; none if the vocabulary can't spell it.

    If the head cuts a character, the rest of that is in byte tokens.
    """
    text = rest.decode(errors="ignore")
    halves = [_vocabulary(tokenizer).byte_ids.get(byte) for byte in rest.removesuffix(text.encode())]
    token_ids = [token_id for token_id in halves if token_id is not None]
    inner = _encode_amid_text(tokenizer, text)
    if inner is None or len(token_ids) < len(halves):
        return ()
    return (*token_ids, *inner)[:LONGEST_TAIL]


def _encode_amid_text(tokenizer: Tokenizer, text: str) -> list[int] | None:
    """An encoder may put a space before a text that stands alone; then it gets one with something before it."""
    wanted = text.encode()
    for lead in ("", "\n"):
        token_ids = tokenizer.encode(lead + text, add_special_tokens=False).ids
        for begin in range(len(token_ids) + 1):
            if _text(tokenizer, token_ids[begin:]) == wanted:
                return token_ids[begin:]
    return None


def _text(tokenizer: Tokenizer, token_ids: Sequence[int]) -> bytes:
    return b"".join([token_bytes(tokenizer, token_id) for token_id in token_ids])


class _Vocabulary:
    """The texts of all tokens behind one another, each with _END, so that one search goes through all of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        size = max(tokenizer.get_vocab().values(), default=-1) + 1
        texts = [token_bytes(tokenizer, token_id) for token_id in range(size)]
        self._texts = b"".join([text + _END for text in texts])
        self._ends = list(accumulate(len(text) + 1 for text in texts))
        self.byte_ids = {text[0]: token_id for token_id, text in enumerate(texts) if len(text) == 1}

    def holding(self, part: bytes) -> list[int]:
        """The ids of the tokens that hold these bytes; with _END: that end with them."""
        token_ids = []
        place = self._texts.find(part)
        while place >= 0:
            token_ids.append(bisect_right(self._ends, place))
            place = self._texts.find(part, self._ends[token_ids[-1]])
        return token_ids


@lru_cache(maxsize=CACHED_TOKENIZERS)
def _vocabulary(tokenizer: Tokenizer) -> _Vocabulary:
    return _Vocabulary(tokenizer)
