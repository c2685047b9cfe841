"""From an answer's raw text to its parts: thoughts first, then calls, and stop strings in what text remains."""

from sampling.params import SamplingParams
from sampling.parts import Part, Reasoning, ToolCall
from sampling.runs import RunGuard
from sampling.stop import StopMatcher
from server.errors import RunawayOutput
from server.request import Reading


class Reader:
    """Reads one answer. `ended` turns true where the answer is over before the engine says so."""

    def __init__(self, params: SamplingParams, reading: Reading) -> None:
        self.ended = False
        self.stop_string: str | None = None  # the one that ended it
        self._reasoning = reading.reasoning() if reading.reasoning else None
        self._tools = reading.tools() if reading.tools else None
        self._stops = StopMatcher(params.stop, include_stop=params.include_stop) if params.stop else None
        self._runs = RunGuard(reading.run_limit) if params.structured and reading.run_limit else None
        self._only_stops = not (self._reasoning or self._tools or self._runs)
        self._one_call = not reading.parallel_calls
        self._called = False
        self._hidden = 0  # characters of text that the stop matcher has taken and not given out
        self._pondering = self._reasoning is not None  # nothing but thoughts so far
        self._thought = False

    @property
    def idle(self) -> bool:
        """Text passes through as it is."""
        return self._only_stops and self._stops is None

    @property
    def thinking(self) -> bool:
        """Whether there is nothing but thoughts so far."""
        return self._pondering

    @property
    def thought(self) -> bool:
        """Whether the tokens so far held a thought."""
        return self._thought

    @property
    def held(self) -> int:
        """How many of the last characters have not been shown, for now or for good."""
        return self._hidden + sum(parser.held for parser in (self._reasoning, self._tools) if parser is not None)

    def push(self, piece: str, *, stoppable: bool) -> list[Part]:
        """What `piece` completes; raises RunawayOutput. `stoppable`: stop strings count already."""
        if self._only_stops:
            return self._stop(self._stops, piece) if self._stops is not None and stoppable else [piece]
        if self._runs is not None and self._runs.exceeded(piece):
            raise RunawayOutput
        parts: list[Part] = [piece]
        if self._reasoning is not None:
            parts = self._reasoning.push(piece)
            self._ponder(parts)
        return self._cut(self._call(parts), stoppable=stoppable)

    def flush(self, *, stoppable: bool) -> list[Part]:
        """The rest, at the end of the answer."""
        parts: list[Part] = []
        if self._reasoning is not None:
            parts = self._reasoning.flush()
            self._ponder(parts)
        parts = self._call(parts)
        if self._tools is not None:
            parts += self._tools.flush()
        return self._cut(parts, stoppable=stoppable) + ([] if self.ended else self._let_go())

    def _ponder(self, parts: list[Part]) -> None:
        if self._pondering:
            self._thought |= any(isinstance(part, Reasoning) for part in parts)
            self._pondering = all(isinstance(part, Reasoning) for part in parts)

    def _call(self, parts: list[Part]) -> list[Part]:
        if self._tools is None:
            return parts
        called: list[Part] = []
        for part in parts:
            called += self._tools.push(part) if isinstance(part, str) else (part,)
        return called

    def _cut(self, parts: list[Part], *, stoppable: bool) -> list[Part]:
        """Ends the answer at a stop string of its text, or before a second call where one is allowed."""
        shown: list[Part] = []
        for position, part in enumerate(parts):
            match part:
                case str() if self._stops is not None and stoppable:
                    shown += self._stop(self._stops, part)
                case ToolCall() if self._one_call and self._called:
                    self.ended = True
                case ToolCall():
                    self._called = True
                    shown += (*self._let_go(), part)
                case _:
                    shown.append(part)
            if self.ended:
                self._hidden += sum(len(rest) for rest in parts[position + 1 :] if isinstance(rest, str))
                break
        return shown

    def _stop(self, stops: StopMatcher, text: str) -> list[Part]:
        shown = stops.push(text)
        self._hidden += len(text) - len(shown)
        if stops.matched is not None:
            self.ended, self.stop_string = True, stops.matched
        return [shown] if shown else []

    def _let_go(self) -> list[Part]:
        """What was held as the beginning of a stop string."""
        text = self._stops.flush() if self._stops is not None else ""
        self._hidden -= len(text)
        return [text] if text else []
