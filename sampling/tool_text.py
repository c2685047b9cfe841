"""The text around the calls of tools."""

from abc import ABC, abstractmethod
from typing import ClassVar

from sampling.incremental import SPACE, Incremental, Markers, Step, after_space
from sampling.parts import Part
from sampling.tool_object import CallObject


class CallParser(Incremental, ABC):
    """Text is exact, but for whitespace directly before and after calls, which is dropped."""

    __slots__ = ("_after_call",)

    special_tokens: ClassVar[bool] = False  # whether the format shows only in text that has its special tokens
    separators: ClassVar[str] = ""  # between calls; no text at the end either

    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self._after_call = False

    def flush(self) -> list[Part]:
        rest = self._rest()
        if not rest or (self._after_call and not rest.strip(SPACE + self.separators)):
            return []
        return [rest]

    def _show(self, text: str, pos: int, end: int, parts: list[Part]) -> None:
        """Text, but for whitespace at its end: a call may follow."""
        if self._after_call:
            pos = min(after_space(text, pos), end)
        if pos == end:
            return
        self._after_call = False
        shown = text[pos:end].rstrip(SPACE)
        if shown:
            parts.append(self._take() + shown)
        self._keep(text[pos + len(shown) : end])

    def _spill(self, parts: list[Part]) -> None:
        """What was kept is no call."""
        kept = self._take()
        self._show(kept, 0, len(kept), parts)

    def _feed(self, call: CallObject, text: str, pos: int, parts: list[Part]) -> int:
        """Where `call` has read to; until it has begun, what it reads may still be text."""
        end = call.feed(text, pos, parts)
        if call.started:
            self._forget()
        else:
            self._keep(text[pos:end])
        return end

    def _plain(self, text: str, pos: int, parts: list[Part]) -> int:
        """No more calls."""
        parts.append(self._take() + text[pos:])
        return len(text)

    def _awaits(self, marker: str, text: str, pos: int) -> bool:
        """Whether `text` ends too early to know if the marker is at `pos`."""
        return len(text) - pos < len(marker) and marker.startswith(text[pos:])


class MarkedCallParser(CallParser):
    """Calls begin at markers, wherever in the text."""

    __slots__ = ("_markers",)

    def __init__(self, markers: Markers) -> None:
        super().__init__(self._text)
        self._markers = markers

    @abstractmethod
    def _marked(self, marker: str, parts: list[Part]) -> None:
        """Chooses the next step after a marker; `_kept` is the whitespace before it."""

    def _text(self, text: str, pos: int, parts: list[Part]) -> int:
        found = self._markers.search(text, pos)
        end = found.start() if found else self._markers.partial(text, pos)
        self._show(text, pos, end, parts)
        if found is None:
            return self._wait(text, end)
        self._marked(found[0], parts)
        return found.end()

    def _back_to_text(self, markers: Markers, *, after_call: bool) -> None:
        self._markers = markers
        self._step = self._text
        if after_call:
            self._after_call = True
            self._forget()
