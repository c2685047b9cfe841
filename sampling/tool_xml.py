"""The format of Qwen3-Coder, whose calls are tags."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sampling.incremental import Markers, after, after_space
from sampling.parts import Arguments, Part, ToolCall
from sampling.tool_schema import ANY, is_text, json_of, parameter_types, quoted
from sampling.tool_text import MarkedCallParser

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
FUNCTION: Final = "<function="
END_FUNCTION: Final = "</function>"
PARAMETER: Final = "<parameter="

OUTSIDE: Final = Markers(OPEN, FUNCTION)
BEFORE_CLOSE: Final = Markers(OPEN, FUNCTION, CLOSE)
INSIDE: Final = Markers(PARAMETER, END_FUNCTION, CLOSE, OPEN, FUNCTION)
# The value's last newline belongs to the tag, the leftmost match takes it.
END_VALUE: Final = Markers("\n</parameter>", "</parameter>")

_after_title = after(r"[^<>\n]*+")


class Qwen3XmlParser(MarkedCallParser):
    """`<tool_call><function=f><parameter=key>\\nvalue\\n</parameter>...</function></tool_call>`.

    The values stand as they are, so the arguments are put together here. Text streams as a string; a value of another
    type, by the tool's schema, is held until it can be checked. The outer tags may be missing, and so may the closing
    tags of a function.
    """

    __slots__ = ("_arguments", "_title", "_tools", "_types", "_value_types")

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(OUTSIDE)
        self._tools = tools
        self._title: list[str] = []
        self._types: dict[str, frozenset[str]] = {}
        self._value_types = ANY
        self._arguments = 0

    def flush(self) -> list[Part]:
        if self._step in (self._text_value, self._typed_value):
            rest = self._rest()
            text = quoted(rest)[1:-1] if self._step == self._text_value else rest
            return [Arguments(text)] if text else []
        if self._after_call and self._markers is not OUTSIDE:
            self._rest()  # the beginning of a tag of the call
        return super().flush()

    def _show(self, text: str, pos: int, end: int, parts: list[Part]) -> None:
        """Nothing between a call's parameters is part of the answer's text: the call isn't over."""
        if self._markers is INSIDE:
            self._take()
        else:
            super()._show(text, pos, end, parts)

    def _marked(self, marker: str, parts: list[Part]) -> None:
        if marker == PARAMETER:
            self._keep(marker)
            self._title = []
            self._step = self._key
            return
        if self._markers is INSIDE:
            self._end_call(marker, parts)
        if marker == OPEN:
            self._keep(marker)
            self._step = self._function
        elif marker == FUNCTION:
            self._begin_name()
        elif marker == CLOSE:
            self._back_to_text(OUTSIDE, after_call=True)

    def _end_call(self, marker: str, parts: list[Part]) -> None:
        parts.append(Arguments("}" if self._arguments else "{}"))
        self._back_to_text(BEFORE_CLOSE, after_call=True)

    def _function(self, text: str, pos: int, parts: list[Part]) -> int:
        end = after_space(text, pos)
        self._keep(text[pos:end])
        if text.startswith(FUNCTION, end):
            self._begin_name()
            return end + len(FUNCTION)
        if self._awaits(FUNCTION, text, end):
            return self._wait(text, end)
        self._spill(parts)
        self._back_to_text(OUTSIDE, after_call=False)
        return end

    def _begin_name(self) -> None:
        self._keep(FUNCTION)
        self._title = []
        self._step = self._name

    def _name(self, text: str, pos: int, parts: list[Part]) -> int:
        end = self._read_title(text, pos)
        if end == len(text):
            return end
        name = "".join(self._title).strip()
        if text[end] != ">" or not name:
            self._spill(parts)
            self._back_to_text(OUTSIDE, after_call=False)
            return end
        parts.append(ToolCall(name))
        self._types = parameter_types(self._tools, name)
        self._arguments = 0
        self._back_to_text(INSIDE, after_call=True)
        return end + 1

    def _key(self, text: str, pos: int, parts: list[Part]) -> int:
        end = self._read_title(text, pos)
        if end == len(text):
            return end
        key = "".join(self._title).strip()
        if text[end] != ">" or not key:
            self._spill(parts)
            self._back_to_text(INSIDE, after_call=False)
            return end
        self._forget()
        self._begin_value(key, parts)
        return end + 1

    def _read_title(self, text: str, pos: int) -> int:
        end = _after_title(text, pos)
        self._title.append(text[pos:end])
        self._keep(text[pos:end])
        return end

    def _begin_value(self, key: str, parts: list[Part]) -> None:
        self._value_types = self._types.get(key, ANY)
        quote = '"' if is_text(self._value_types) else ""
        parts.append(Arguments(f"{', ' if self._arguments else '{'}{quoted(key)}: {quote}"))
        self._arguments += 1
        self._step = self._first_newline

    def _first_newline(self, text: str, pos: int, parts: list[Part]) -> int:
        self._step = self._text_value if is_text(self._value_types) else self._typed_value
        return pos + 1 if text[pos] == "\n" else pos

    def _text_value(self, text: str, pos: int, parts: list[Part]) -> int:
        found = END_VALUE.search(text, pos)
        end = found.start() if found else END_VALUE.partial(text, pos)
        if end > pos:
            parts.append(Arguments(quoted(text[pos:end])[1:-1]))
        if found is None:
            return self._wait(text, end)
        parts.append(Arguments('"'))
        self._back_to_text(INSIDE, after_call=True)
        return found.end()

    def _typed_value(self, text: str, pos: int, parts: list[Part]) -> int:
        found = END_VALUE.search(text, pos)
        end = found.start() if found else END_VALUE.partial(text, pos)
        self._keep(text[pos:end])
        if found is None:
            return self._wait(text, end)
        parts.append(Arguments(json_of(self._take(), self._value_types)))
        self._back_to_text(INSIDE, after_call=True)
        return found.end()
