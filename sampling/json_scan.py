"""JSON that comes in pieces: where a value ends, and what a string says. Nothing recurses, whatever the nesting."""

import re

from sampling.incremental import after

_HEX = "[0-9a-fA-F]"
_HIGH = f"[dD][89abAB]{_HEX}{{2}}"
_LOW = f"[dD][c-fC-F]{_HEX}{{2}}"
_PARTIAL_LOW = rf"(?:[dD](?:[c-fC-F]{_HEX}{{0,1}})?)?\Z"

# Text of a string up to its end or to an escape that isn't complete; half a surrogate pair isn't. What is no escape of
# JSON's is passed over as text.
_decided = after(
    rf"""(?:
        [^"\\]++
        | \\[^u]
        | \\u(?!{_HIGH}){_HEX}{{4}}
        | \\u{_HIGH}\\u{_LOW}
        | \\u{_HIGH}(?:(?!\\|\Z)|(?=\\[^u])|(?=\\u(?!{_LOW}|{_PARTIAL_LOW})))
        | \\u(?!{_HEX}{{4}}|{_HEX}{{0,3}}\Z)
    )*+""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rf"\\u({_HIGH})\\u({_LOW})|\\u({_HEX}{{4}})|\\([^u])", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"'}
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_after_scalar = after(r"[-+.0-9A-Za-z]*+")
_after_string = after(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_to_bracket = after(r'[^"{}\[\]]*+')


def _char(escape: re.Match[str]) -> str:
    high, low, code, simple = escape.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    if code:
        # A lone surrogate can't be sent on as UTF-8.
        return REPLACEMENT if "d8" <= code[:2].lower() <= "df" else chr(int(code, 16))
    return _SIMPLE.get(simple, escape[0])


class JsonString:
    """The text of a string, from after its opening quote."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False

    def feed(self, text: str, pos: int) -> tuple[str, int]:
        """The text that is complete, and where it ends: before an escape whose end is yet to come."""
        end = _decided(text, pos)
        decided = text[pos:end]
        if "\\" in decided:
            decided = _ESCAPE.sub(_char, decided)
        if text.startswith('"', end):
            self.closed = True
            end += 1
        return decided, end


class JsonValue:
    """Any value, from its first character. Brackets are counted, not matched: what they hold is passed on."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_scalar", "done")

    def __init__(self, first: str) -> None:
        self._scalar = first not in '"{['
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.done = False

    def feed(self, text: str, pos: int) -> int:
        """Where the value, or what there is of it, ends."""
        if self._scalar:
            return self._feed_scalar(text, pos)
        size = len(text)
        while pos < size and not self.done:
            pos = self._feed_string(text, pos) if self._in_string else self._feed_brackets(text, pos)
        return pos

    def _feed_scalar(self, text: str, pos: int) -> int:
        end = _after_scalar(text, pos)
        self.done = end < len(text)
        return end

    def _feed_string(self, text: str, pos: int) -> int:
        if self._escaped:
            self._escaped = False
            pos += 1
        end = _after_string(text, pos)
        if end == len(text):
            return end
        if text[end] == "\\":  # the last character: what it escapes is yet to come
            self._escaped = True
        else:
            self._in_string = False
            self.done = self._depth == 0
        return end + 1

    def _feed_brackets(self, text: str, pos: int) -> int:
        end = _to_bracket(text, pos)
        if end == len(text):
            return end
        char = text[end]
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        else:
            self._depth -= 1
            self.done = self._depth == 0
        return end + 1
