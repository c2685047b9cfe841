"""What the text of an answer consists of, and how it is read from the tokens' text as it comes.

A parser is fed pieces of text and gives the parts they complete. However the text is cut into pieces, the parts,
joined, are the same: a non-streamed answer is the streamed one, collected.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of the tool `name` begins."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of the JSON text of the arguments of the call that began last."""

    text: str


Part = str | Reasoning | ToolCall | Arguments
"""A plain `str` is a piece of the answer's visible text. No part is empty."""


class Parser(Protocol):
    """Reads one answer. O(1) per token: nothing that was pushed is looked at twice."""

    @property
    def held(self) -> int:
        """Characters pushed and not yet decided upon: always the last ones. Zero after `flush`."""
        ...

    def push(self, text: str) -> list[Part]: ...

    def flush(self) -> list[Part]:
        """The rest, at the end of the answer: what was held in vain is text. Nothing is lost."""
        ...
