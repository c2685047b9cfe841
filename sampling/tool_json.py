"""Formats whose calls are JSON objects."""

from abc import abstractmethod
from typing import ClassVar, Final

from sampling.incremental import Markers, Step, after_space
from sampling.parts import Arguments, Part, ToolCall
from sampling.tool_object import CallObject
from sampling.tool_text import CallParser, MarkedCallParser

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
PYTHON_TAG: Final = "<|python_tag|>"

OUTSIDE: Final = Markers(OPEN)
BEFORE_CLOSE: Final = Markers(OPEN, CLOSE)


class HermesParser(MarkedCallParser):
    """`<tool_call>{"name": "f", "arguments": {...}}</tool_call>`, as Hermes and Qwen write it.

    A block that turns out to be no call is text. What stands between the object of a call and the closing marker is
    text too, and the marker itself may be missing.
    """

    __slots__ = ("_call",)

    def __init__(self) -> None:
        super().__init__(OUTSIDE)
        self._call = CallObject()

    def flush(self) -> list[Part]:
        if self._after_call and self._markers is BEFORE_CLOSE:
            self._tail = ""  # the beginning of the closing marker
        return super().flush()

    def _marked(self, marker: str, parts: list[Part]) -> None:
        if marker == CLOSE:
            self._back_to_text(OUTSIDE, after_call=True)
            return
        self._keep(marker)
        self._call = CallObject()
        self._step = self._object

    def _object(self, text: str, pos: int, parts: list[Part]) -> int:
        call = self._call
        end = self._feed(call, text, pos, parts)
        if call.reading:
            return self._wait(text, end)
        if call.started:
            self._back_to_text(BEFORE_CLOSE, after_call=True)
        else:
            self._spill(parts)
            self._back_to_text(OUTSIDE, after_call=False)
        return end


class _ObjectsParser(CallParser):
    """The whole answer is calls; what doesn't fit, and all that follows it, is text."""

    __slots__ = ("_call",)

    strict: ClassVar[bool]

    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self._call = CallObject()

    def _skip_space(self, text: str, pos: int) -> int:
        end = after_space(text, pos)
        if not self._after_call or self._kept:
            self._keep(text[pos:end])
        return end

    def _begin_object(self, pos: int) -> int:
        self._call = CallObject(strict=self.strict)
        self._step = self._object
        return pos

    def _object(self, text: str, pos: int, parts: list[Part]) -> int:
        call = self._call
        end = self._feed(call, text, pos, parts)
        if call.reading:
            return self._wait(text, end)
        if not call.started:
            return self._no_call(end, parts)
        self._after_call = True
        self._step = self._after_object
        return end

    @abstractmethod
    def _after_object(self, text: str, pos: int, parts: list[Part]) -> int: ...

    def _no_call(self, pos: int, parts: list[Part]) -> int:
        self._spill(parts)
        self._step = self._plain
        return pos

    def _move(self, step: Step, text: str, pos: int) -> int:
        """Past a character that is none of the text unless what follows turns out to be no call."""
        self._keep(text[pos])
        self._step = step
        return pos + 1


class Llama3JsonParser(_ObjectsParser):
    """`{"name": "f", "parameters": {...}}`, several with `;` between them, perhaps after `<|python_tag|>`."""

    __slots__ = ()

    special_tokens = True
    separators = ";"
    strict = True

    def __init__(self) -> None:
        super().__init__(self._begin)

    def _begin(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = self._skip_space(text, pos)
        if pos == len(text):
            return pos
        if text.startswith(PYTHON_TAG, pos):
            self._keep(PYTHON_TAG)
            self._step = self._after_tag
            return pos + len(PYTHON_TAG)
        if self._awaits(PYTHON_TAG, text, pos):
            return self._wait(text, pos)
        return self._after_tag(text, pos, parts)

    def _after_tag(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = self._skip_space(text, pos)
        if pos == len(text):
            return pos
        return self._begin_object(pos) if text[pos] == "{" else self._no_call(pos, parts)

    def _after_object(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = self._skip_space(text, pos)
        if text.startswith(";", pos):
            return self._move(self._begin, text, pos)
        self._step = self._begin if pos < len(text) else self._after_object
        return pos


class CallArrayParser(_ObjectsParser):
    """`[{"name": "f", "parameters": {...}}, ...]`, which a grammar makes of a whole answer that must be calls."""

    __slots__ = ()

    separators = ","
    strict = False

    def __init__(self) -> None:
        super().__init__(self._begin)

    def _begin(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = self._skip_space(text, pos)
        if text.startswith("[", pos):
            return self._move(self._element, text, pos)
        return pos if pos == len(text) else self._no_call(pos, parts)

    def _element(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = self._skip_space(text, pos)
        if text.startswith("{", pos):
            return self._begin_object(pos)
        return pos if pos == len(text) else self._no_call(pos, parts)

    def _after_object(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = self._skip_space(text, pos)
        if text.startswith(",", pos):
            return self._move(self._element, text, pos)
        if text.startswith("]", pos):
            self._step = self._end
            return pos + 1
        return pos if pos == len(text) else self._no_call(pos, parts)

    def _end(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = self._skip_space(text, pos)
        return pos if pos == len(text) else self._no_call(pos, parts)


class NamedCallParser:
    """The whole answer is the arguments of one call, whose name is known."""

    __slots__ = ("_begun", "_name")

    special_tokens: ClassVar[bool] = False
    held = 0

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = False

    def push(self, text: str) -> list[Part]:
        if not text:
            return []
        if self._begun:
            return [Arguments(text)]
        self._begun = True
        return [ToolCall(self._name), Arguments(text)]

    def flush(self) -> list[Part]:
        return []
