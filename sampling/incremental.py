"""Text that comes in pieces and is held no longer than it takes to know what it is: what the parsers have in common."""

import re
from collections.abc import Callable

from sampling.parts import Part

SPACE = " \t\r\n"

Step = Callable[[str, int, list[Part]], int]


def after(pattern: str, flags: int = 0) -> Callable[[str, int], int]:
    """Says where, from a place in a text on, the characters end that a pattern matches."""
    match = re.compile(pattern, flags).match

    def end(text: str, pos: int) -> int:
        found = match(text, pos)
        return found.end() if found else pos

    return end


after_space = after(r"[ \t\r\n]*+")


class Markers:
    """Where the first of some strings stands. None may be completed inside another, before that one is."""

    __slots__ = ("_beginnings", "_longest", "search")

    def __init__(self, *markers: str) -> None:
        # `search` can be unanchored: what may still become a marker is kept, and searched again with what follows.
        self.search = re.compile("|".join(map(re.escape, markers))).search
        self._beginnings = frozenset(marker[:length] for marker in markers for length in range(1, len(marker)))
        self._longest = max(map(len, markers)) - 1

    def partial(self, text: str, pos: int) -> int:
        """Where the longest end of `text` begins that may become a marker."""
        size = len(text)
        for start in range(max(pos, size - self._longest), size):
            if text[start:] in self._beginnings:
                return start
        return size


class Incremental:
    """A machine whose current step reads on from a place in the text and says how far it got.

    What can't be decided yet is either `_kept`, and never looked at again until it's known what it is, or the `_tail`,
    which is shorter than the longest marker and is read again together with the next piece.
    """

    __slots__ = ("_kept", "_kept_size", "_step", "_tail")

    def __init__(self, step: Step) -> None:
        self._step = step
        self._tail = ""
        self._kept: list[str] = []
        self._kept_size = 0

    @property
    def held(self) -> int:
        return self._kept_size + len(self._tail)

    def push(self, text: str) -> list[Part]:
        if self._tail:
            text, self._tail = self._tail + text, ""
        parts: list[Part] = []
        pos, size = 0, len(text)
        while pos < size:
            pos = self._step(text, pos, parts)
        return parts

    def _wait(self, text: str, pos: int) -> int:
        """Puts off the rest, a few characters at most, until more is known."""
        self._tail = text[pos:]
        return len(text)

    def _keep(self, text: str) -> None:
        if text:
            self._kept.append(text)
            self._kept_size += len(text)

    def _take(self) -> str:
        text = "".join(self._kept)
        self._forget()
        return text

    def _forget(self) -> None:
        if self._kept:
            self._kept.clear()
            self._kept_size = 0

    def _rest(self) -> str:
        """All that is held, which then isn't any more."""
        text, self._tail = self._take() + self._tail, ""
        return text
