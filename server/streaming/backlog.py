"""What the choices of a stream said while its outbox was full: kept as parts, merged, and encoded only in the end.

Steps merge where one event says the same as theirs did: all of one kind, text, thoughts or arguments. Each run keeps
its own tokens, since some protocols show the log probabilities of text alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from sampling.logprobs import Released
from sampling.parts import Part, ToolCall
from server.errors import SlowReader
from server.streaming.choice import Choice
from server.streaming.slow_readers import BACKLOG, CUTS, MERGED_DELTAS

# About what these take as JSON; in memory they take no less.
EVENT_BYTES = 256  # an event without its text
ENTRY_BYTES = 80  # a token's log probability, or an alternative's
ID_BYTES = 8


@dataclass(slots=True)
class Run:
    """Steps that leave together. `kind` is their parts', None where these differ or begin a call."""

    kind: type[Part] | None
    parts: list[Part] = field(default_factory=list)
    tokens: Released = field(default_factory=Released)


@dataclass(slots=True)
class _Held:
    runs: list[Run] = field(default_factory=list)
    size: int = 0


class Backlog:
    """Of one stream. `size` is about what it will be in bytes when encoded, and may reach `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self.size = 0
        self._limit = limit_bytes
        self._held: dict[Choice, _Held] = {}

    def __contains__(self, choice: Choice) -> bool:
        return choice in self._held

    @property
    def choices(self) -> list[Choice]:
        """Those with something held, in the order in which they fell behind."""
        return list(self._held)

    def add(self, choice: Choice, parts: Sequence[Part]) -> None:
        """Keep the parts of one step and the tokens it released; raises SlowReader when the bound is passed."""
        held = self._held.setdefault(choice, _Held())
        kind = _kind(parts)
        grown = _text_bytes(parts) + _token_bytes(choice)
        if kind is None or not held.runs or held.runs[-1].kind is not kind:
            held.runs.append(Run(kind))
            grown += EVENT_BYTES * len(parts)
        run = held.runs[-1]
        run.parts += parts
        run.tokens.extend(choice.released)
        choice.released = Released()
        held.size += grown
        self.size += grown
        MERGED_DELTAS.inc()
        if self.size > self._limit:
            CUTS.labels(BACKLOG).inc()
            raise SlowReader

    def take(self, choice: Choice) -> list[Run]:
        """All that is held of `choice`, merged."""
        held = self._held.pop(choice, None)
        if held is None:
            return []
        self.size -= held.size
        for run in held.runs:
            run.parts = merged(run.parts)
        return held.runs

    def clear(self) -> None:
        self._held.clear()
        self.size = 0


def merged(parts: Iterable[Part]) -> list[Part]:
    """The same answer in as few parts as can be."""
    found: list[Part] = []
    for kind, run in groupby(parts, type):
        if kind is ToolCall:
            found += run
        else:
            text = "".join(map(_text, run))
            found.append(text if kind is str else kind(text))
    return found


def _kind(parts: Sequence[Part]) -> type[Part] | None:
    kind = type(parts[0])
    return None if kind is ToolCall or any(type(part) is not kind for part in parts) else kind


def _text(part: Part) -> str:
    if isinstance(part, str):
        return part
    return part.name if isinstance(part, ToolCall) else part.text


def _text_bytes(parts: Sequence[Part]) -> int:
    return sum(len(_text(part).encode()) for part in parts)


def _token_bytes(choice: Choice) -> int:
    """Of the tokens that the next event takes along."""
    tokens = choice.released
    alternatives = choice.sequence.params.logprobs or 0
    return ID_BYTES * len(tokens.ids) + ENTRY_BYTES * (1 + alternatives) * len(tokens.logprobs)
