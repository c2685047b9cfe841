"""What a choice has said so far, whole: the answer that is not streamed, and the last events of those that are."""

from dataclasses import dataclass, field
from uuid import uuid4

from sampling.logprobs import Released
from sampling.parts import Arguments, Part, Reasoning, ToolCall


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request: cached ones are among its prompts', reasoning ones among the output's."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(slots=True)
class Call:
    """A tool call. `id` is ours and unique."""

    name: str
    id: str = field(default_factory=lambda: f"call_{uuid4().hex[:24]}")
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """Their JSON text, as the model wrote it."""
        return "".join(self.pieces)


@dataclass(slots=True)
class Passage:
    """Text, or thoughts, that nothing else interrupts."""

    thoughts: bool
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Answer:
    """Parts joined: `items` in order of appearance, the rest by kind."""

    def __init__(self) -> None:
        self.items: list[Passage | Call] = []
        self.calls: list[Call] = []
        self.tokens = Released()
        self._text: list[str] | None = None  # the pieces of the text under way

    @property
    def text(self) -> str:
        return "".join(passage.text for passage in self._passages(thoughts=False))

    @property
    def reasoning(self) -> str:
        return "".join(passage.text for passage in self._passages(thoughts=True))

    @property
    def content(self) -> str | None:
        """The text, or None where there are only thoughts or calls."""
        return self.text if self._passages(thoughts=False) or not self.items else None

    def add(self, part: Part) -> None:
        if isinstance(part, str):  # nearly always
            if self._text is None:
                self._text = self._passage(thoughts=False)
            self._text.append(part)
            return
        self._text = None
        match part:
            case Reasoning():
                self._passage(thoughts=True).append(part.text)
            case ToolCall():
                call = Call(part.name)
                self.calls.append(call)
                self.items.append(call)
            case Arguments():
                self.calls[-1].pieces.append(part.text)

    def _passages(self, *, thoughts: bool) -> list[Passage]:
        return [item for item in self.items if isinstance(item, Passage) and item.thoughts is thoughts]

    def _passage(self, *, thoughts: bool) -> list[str]:
        """The pieces of the passage under way."""
        if self.items and isinstance(last := self.items[-1], Passage) and last.thoughts is thoughts:
            return last.pieces
        passage = Passage(thoughts)
        self.items.append(passage)
        return passage.pieces
