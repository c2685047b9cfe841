"""Stop strings in a text that arrives in pieces."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

ROOT = 0
UNKNOWN = -1


class StopMatcher:
    """Lets text through up to the first stop to be completed; of stops that end together, the longest counts.

    An Aho-Corasick automaton: a node is a beginning of some stop, and the current node is the longest one that the text
    ends with, so exactly that much is held back. Failure links are found when a node is first reached: what a stop
    costs grows with how much of it the text has shown, not with how long it is.
    """

    __slots__ = ("_ends", "_fail", "_first_chars", "_include_stop", "_node", "_trie", "matched")

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        if "" in stops:
            raise ValueError("a stop string must not be empty")
        self.matched: str | None = None
        self._include_stop = include_stop
        self._first_chars = frozenset(stop[0] for stop in stops)
        self._trie = _Trie(stops)
        self._ends = dict(self._trie.leaves)
        self._fail = array("q", [UNKNOWN]) * len(self._trie.chars)
        self._fail[ROOT] = ROOT
        self._node = ROOT

    def push(self, text: str) -> str:
        """The text that may be shown now; nothing once a stop has matched."""
        if self.matched is not None:
            return ""
        if self._node == ROOT and self._first_chars.isdisjoint(text):
            return text
        held = self._node
        for length, char in enumerate(text, 1):
            self._advance(char)
            if self._node in self._ends:
                return self._finish(held, text[:length])
        return self._prefix(held, text, len(text) - self._trie.depth(self._node))

    def flush(self) -> str:
        """What is held back, for a sequence that ends without a match."""
        held, self._node = self._node, ROOT
        return self._trie.text(held, self._trie.depth(held))

    def _advance(self, char: str) -> None:
        node, child = self._node, self._trie.child
        following = child(node, char)
        while following is None and node != ROOT:
            node = self._fail[node]
            following = child(node, char)
        self._node = following or ROOT
        if self._fail[self._node] == UNKNOWN:
            self._link(self._node)

    def _link(self, node: int) -> None:
        """Finds the failure links of a node and of all nodes they lead to; those of its parent are known."""
        fresh = []
        while self._fail[node] == UNKNOWN:
            self._fail[node] = self._longest_suffix(node)
            fresh.append(node)
            node = self._fail[node]
        for node in reversed(fresh):
            if node not in self._ends and self._fail[node] in self._ends:
                self._ends[node] = self._ends[self._fail[node]]

    def _longest_suffix(self, node: int) -> int:
        char, state = self._trie.chars[node], self._trie.parent(node)
        while state != ROOT:
            state = self._fail[state]
            following = self._trie.child(state, char)
            if following is not None:
                return following
        return ROOT

    def _finish(self, held: int, text: str) -> str:
        self.matched = self._ends[self._node]
        self._node = ROOT
        return self._prefix(held, text, len(text) - (0 if self._include_stop else len(self.matched)))

    def _prefix(self, held: int, text: str, end: int) -> str:
        """What was held, then `text`, up to `end`: counted in `text`, so negative where the end lies in what was held.

        Copies no more than it gives out: a long stop that goes on matching mustn't cost its length with each push.
        """
        return self._trie.text(held, self._trie.depth(held) + end) + text[: max(end, 0)]


class _Run(NamedTuple):
    """The nodes a stop adds to the trie are numbered on end: `first` is the one after its first `shared` characters."""

    first: int
    shared: int
    stop: str


class _Trie:
    """All beginnings of all stops. A node's child is the next number, but where a stop branches off."""

    __slots__ = ("_branches", "_firsts", "_parents", "_runs", "chars", "leaves")

    def __init__(self, stops: Sequence[str]) -> None:
        self.chars = [""]  # the character that leads to each node
        self.leaves: dict[int, str] = {}
        self._runs: list[_Run] = []
        self._firsts: list[int] = []
        self._parents: dict[int, int] = {}
        self._branches: dict[tuple[int, str], int] = {}
        for stop in sorted(stops, key=len):
            self._insert(stop)

    def child(self, node: int, char: str) -> int | None:
        """Of a node that isn't a leaf."""
        return node + 1 if self.chars[node + 1] == char else self._branches.get((node, char))

    def parent(self, node: int) -> int:
        return self._parents.get(node, node - 1)

    def depth(self, node: int) -> int:
        if node == ROOT:
            return 0
        run = self._run(node)
        return run.shared + 1 + node - run.first

    def text(self, node: int, limit: int) -> str:
        return "" if node == ROOT else self._run(node).stop[: min(self.depth(node), limit)]

    def _run(self, node: int) -> _Run:
        return self._runs[bisect_right(self._firsts, node) - 1]

    def _insert(self, stop: str) -> None:
        """Shorter stops are in already, so that no stop ends inside another, and leaves have no children."""
        node = ROOT
        for shared, char in enumerate(stop):
            following = self.child(node, char) if self._runs else None
            if following is None:
                self._branch(node, shared, stop)
                return
            if following in self.leaves:  # a shorter stop begins this one and always ends the text first
                return
            node = following

    def _branch(self, node: int, shared: int, stop: str) -> None:
        first = len(self.chars)
        self._branches[node, stop[shared]] = first
        self._parents[first] = node
        self._firsts.append(first)
        self._runs.append(_Run(first, shared, stop))
        self.chars.extend(stop[shared:])
        self.leaves[len(self.chars) - 1] = stop
