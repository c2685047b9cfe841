"""Which tokens followed the latest tokens when they occurred before: a suffix automaton that grows with the text.

Blumer, Blumer, Haussler, Ehrenfeucht, Chen and Seiferas, "The smallest automaton recognizing the subwords of a text",
Theoretical Computer Science 40 (1985). A state stands for the substrings that end at the same places of the text; it
knows the longest of them, the tokens that followed (its transitions), and its link: the state of the longest suffix
that also ends elsewhere. For n tokens there are at most 2n states and 3n transitions.
"""

from collections.abc import Iterator, KeysView

_ROOT = 0  # the empty substring


class Suffixes:
    """The text's suffixes that occur earlier in it too, followed while they are no longer than `longest` tokens.

    A token costs amortized O(1), however long the text. The earlier occurrence may overlap the suffix.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        # States
        self._next: list[dict[int, int]] = [{}]
        self._length = [0]
        self._link = [-1]
        self._text = _ROOT
        # The longest suffix that counts: its state and its length, which may be below the state's own
        self._state = _ROOT
        self._matched = 0

    def append(self, token: int) -> None:
        """One more token of the text."""
        self._follow(token)
        self._extend(token)

    def cut(self) -> None:
        """Suffixes begin here at the earliest: none reaches back beyond the text so far."""
        self._state, self._matched = _ROOT, 0

    def walk(self, shortest: int) -> Iterator[tuple[int, KeysView[int]]]:
        """(length, tokens that followed it) of the suffixes that occur earlier, from the longest down to `shortest`.

        Of those that always end together only the longest is there. What followed one also followed the shorter ones
        after it. At most `longest - shortest + 1` steps.
        """
        state, length = self._state, self._matched
        while state >= _ROOT and length >= shortest:
            yield length, self._next[state].keys()
            state = self._link[state]
            length = self._length[state]

    @property
    def states(self) -> int:
        """What the memory goes by."""
        return len(self._next)

    def _follow(self, token: int) -> None:
        """Move on to the longest suffix with the token, as far as the text without this token at its end has it.

        It grows by one token at most, so all the links ever taken back are no more than the tokens.
        """
        following, link = self._next, self._link
        state = self._state
        while token not in following[state]:
            if state == _ROOT:
                self.cut()
                return
            state = link[state]
            self._matched = self._length[state]
        state = following[state][token]
        self._matched += 1
        if self._matched > self._longest:
            self._matched = self._longest
            if self._length[link[state]] >= self._longest:
                state = link[state]
        self._state = state

    def _extend(self, token: int) -> None:
        following, link = self._next, self._link
        new = self._add(self._length[self._text] + 1, {}, _ROOT)
        state, self._text = self._text, new
        while state >= _ROOT and token not in following[state]:
            following[state][token] = new
            state = link[state]
        if state >= _ROOT:
            link[new] = self._suffix_state(state, token)

    def _suffix_state(self, before: int, token: int) -> int:
        """The state whose longest substring is that of `before` and the token; split off from a longer one's."""
        following, link = self._next, self._link
        whole = following[before][token]
        length = self._length[before] + 1
        if self._length[whole] == length:
            return whole
        part = self._add(length, following[whole].copy(), link[whole])
        link[whole] = part
        while before >= _ROOT and following[before].get(token) == whole:
            following[before][token] = part
            before = link[before]
        if self._state == whole:  # what is followed ends here too, and so is at most as long as the part
            self._state = part
        return part

    def _add(self, length: int, following: dict[int, int], link: int) -> int:
        self._next.append(following)
        self._length.append(length)
        self._link.append(link)
        return len(self._next) - 1
