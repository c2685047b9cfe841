"""Runs of blanks or digits, in which a model under a grammar may get stuck: each more is as valid as the last."""

import re

_RUN = re.compile(r"\s+|\d+")


class RunGuard:
    """Watches for more than `limit` blanks, or digits, on end in a text that arrives in pieces."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._length = 0
        self._digits = False

    def exceeded(self, piece: str) -> bool:
        """True once a run has grown past the limit."""
        for run in _RUN.finditer(piece):
            digits = piece[run.start()].isdecimal()
            continues = run.start() == 0 and digits == self._digits
            self._length = (self._length if continues else 0) + run.end() - run.start()
            self._digits = digits
            if self._length > self._limit:
                return True
        if piece and not (piece[-1].isspace() or piece[-1].isdecimal()):
            self._length = 0
        return False
