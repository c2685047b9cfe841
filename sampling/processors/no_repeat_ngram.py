"""No repeated n-grams: what fairseq and transformers call `no_repeat_ngram_size`."""

from collections import defaultdict
from collections.abc import Collection

import torch

from sampling.processors.base import Group, Row, Sampler
from sampling.shaping import Shaping


class NoRepeatNgram(Sampler):
    """Takes out every token that would complete an n-gram which prompt and output have already; n = 1: all of theirs.

    Paulus, Xiong and Socher, "A Deep Reinforced Model for Abstractive Summarization" (2017), section 2.5, for n = 3. A
    row that would lose its last token, because a grammar allows no other, stays as it is.
    """

    def wanted(self, shaping: Shaping) -> bool:
        return shaping.no_repeat_ngram_size > 0

    def apply(self, logits: torch.Tensor, group: Group) -> torch.Tensor:
        rows: list[int] = []
        tokens: list[int] = []
        for place, history in enumerate(group.states(NoRepeatNgram, _History)):
            banned = history.banned(group.rows[place])
            rows += [place] * len(banned)
            tokens += banned
        if rows:
            where = torch.tensor([rows, tokens], device=logits.device)
            _ban(logits, where[0], where[1])
        return logits


def _ban(logits: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor) -> None:
    before = logits[rows, tokens]
    logits[rows, tokens] = -torch.inf
    emptied = logits.amax(dim=1) == -torch.inf
    logits[rows, tokens] = before.where(emptied[rows], -torch.inf)


class _History:
    """What followed each (n-1)-gram of a request."""

    def __init__(self, row: Row) -> None:
        self._size = row.shaping.no_repeat_ngram_size
        self._seen = 0
        self._recent: tuple[int, ...] = ()  # the latest n - 1 tokens
        self._followers: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)

    def banned(self, row: Row) -> Collection[int]:
        """The tokens that would complete a known n-gram."""
        self._read(row.tokens_from(self._seen))
        return self._followers.get(self._recent, ())

    def _read(self, tokens: list[int]) -> None:
        for token in tokens:
            ngram = (*self._recent, token)
            if len(ngram) == self._size:
                self._followers[ngram[:-1]].add(token)
                ngram = ngram[1:]
            self._recent = ngram
        self._seen += len(tokens)
