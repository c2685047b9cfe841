"""The JSON object by which a model calls a tool, read as it comes."""

from typing import Final

from sampling.incremental import Step, after_space
from sampling.json_scan import JsonString, JsonValue
from sampling.parts import Arguments, Part, ToolCall

NAME: Final = "name"
ARGUMENTS: Final = frozenset({"arguments", "parameters"})
WAIT: Final = -1


class CallObject:
    """`{"name": "f", "arguments": {...}}`, from its brace on; the keys in any order, and others are skipped.

    The call begins as soon as its name is known and its arguments begin, or the object ends without any. Their text is
    passed on as it is; only where they are given as a string it is what the string says. An object that isn't `reading`
    any more either has been `started` as a call or is none.
    """

    __slots__ = (
        "_any_first_key",
        "_arguments_seen",
        "_early",
        "_key",
        "_key_pieces",
        "_name",
        "_needs_arguments",
        "_step",
        "_string",
        "_value",
        "reading",
        "started",
    )

    def __init__(self, *, strict: bool = False) -> None:
        """`strict`: any other object may come, and only one that begins like a call and has arguments is one."""
        self.reading = True
        self.started = False
        self._any_first_key = not strict
        self._needs_arguments = strict
        self._arguments_seen = False
        self._name = ""
        self._key = ""
        self._key_pieces: list[str] = []
        self._early: list[str] = []
        self._string = JsonString()
        self._value = JsonValue("")
        self._step: Step = self._open

    def feed(self, text: str, pos: int, parts: list[Part]) -> int:
        """How far it got: to the end of the object or to what can't be part of one, or as far as can be decided."""
        size = len(text)
        while pos < size and self.reading:
            following = self._step(text, pos, parts)
            if following == WAIT:
                break
            pos = following
        return pos

    def _break(self, pos: int) -> int:
        self.reading = False
        return pos

    def _open(self, text: str, pos: int, parts: list[Part]) -> int:
        return self._expect("{", self._key_or_end, text, pos)

    def _expect(self, char: str, then: Step, text: str, pos: int) -> int:
        pos = after_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] != char:
            return self._break(pos)
        self._step = then
        return pos + 1

    def _key_or_end(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = after_space(text, pos)
        if text.startswith("}", pos):
            return self._close(pos + 1, parts)
        self._key_pieces, self._string = [], JsonString()
        return self._expect('"', self._read_key, text, pos)

    def _read_key(self, text: str, pos: int, parts: list[Part]) -> int:
        end = self._read_string(text, pos)
        if self._string.closed:
            self._key = "".join(self._key_pieces)
            if not self._any_first_key and self._key not in {NAME, "type", *ARGUMENTS}:
                return self._break(end)
            self._any_first_key = True
            self._step = self._colon
        return end

    def _colon(self, text: str, pos: int, parts: list[Part]) -> int:
        return self._expect(":", self._begin_value, text, pos)

    def _begin_value(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = after_space(text, pos)
        if pos == len(text):
            return pos
        if self._key == NAME and not self._name:
            self._key_pieces, self._string = [], JsonString()
            return self._expect('"', self._read_name, text, pos)
        if self._key in ARGUMENTS and not self._arguments_seen:
            self._arguments_seen = True
            return self._begin_arguments(text, pos)
        return self._begin_raw(self._skip, text, pos)

    def _begin_arguments(self, text: str, pos: int) -> int:
        if text[pos] == '"':
            self._string = JsonString()
            self._step = self._read_arguments_string
            return pos + 1
        # null is as good as nothing
        return self._begin_raw(self._skip if text[pos] == "n" else self._read_arguments, text, pos)

    def _begin_raw(self, step: Step, text: str, pos: int) -> int:
        first = text[pos]
        if first not in '"{[-' and not (first.isascii() and first.isalnum()):
            return self._break(pos)
        self._value = JsonValue(first)
        self._step = step
        return pos

    def _read_name(self, text: str, pos: int, parts: list[Part]) -> int:
        end = self._read_string(text, pos)
        if not self._string.closed:
            return end
        self._name = "".join(self._key_pieces)
        if not self._name:
            return self._break(end)
        if self._early:
            self._start(parts)
            parts.append(Arguments("".join(self._early)))
            self._early = []
        self._step = self._comma_or_end
        return end

    def _read_string(self, text: str, pos: int) -> int:
        decoded, end = self._string.feed(text, pos)
        self._key_pieces.append(decoded)
        return WAIT if end == pos else end

    def _read_arguments_string(self, text: str, pos: int, parts: list[Part]) -> int:
        decoded, end = self._string.feed(text, pos)
        self._give(decoded, parts)
        if self._string.closed:
            self._step = self._comma_or_end
        return WAIT if end == pos else end

    def _read_arguments(self, text: str, pos: int, parts: list[Part]) -> int:
        end = self._skip(text, pos, parts)
        self._give(text[pos:end], parts)
        return end

    def _skip(self, text: str, pos: int, parts: list[Part]) -> int:
        end = self._value.feed(text, pos)
        if self._value.done:
            self._step = self._comma_or_end
        return end

    def _comma_or_end(self, text: str, pos: int, parts: list[Part]) -> int:
        pos = after_space(text, pos)
        if text.startswith("}", pos):
            return self._close(pos + 1, parts)
        return self._expect(",", self._key_or_end, text, pos)

    def _close(self, pos: int, parts: list[Part]) -> int:
        self.reading = False
        if self._name and not self.started and (self._arguments_seen or not self._needs_arguments):
            self._start(parts)
            parts.append(Arguments("{}"))
        return pos

    def _give(self, text: str, parts: list[Part]) -> None:
        if not text:
            return
        if not self._name:
            self._early.append(text)
            return
        if not self.started:
            self._start(parts)
        parts.append(Arguments(text))

    def _start(self, parts: list[Part]) -> None:
        self.started = True
        parts.append(ToolCall(self._name))
