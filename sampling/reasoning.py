"""What a model thinks before it answers, told apart from the answer."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sampling.incremental import SPACE, Incremental, Markers, after_space
from sampling.parts import Parser, Part, Reasoning

log = logging.getLogger(__name__)

THINK = ("<think>", "</think>")


class ThinkParser(Incremental):
    """Thinking between two markers, at the beginning of the answer only.

    `inside`: the prompt has opened the thinking already. Whitespace at the inner sides of the markers and after the
    thinking is dropped: models put blank lines there that belong to neither.
    """

    __slots__ = ("_end", "_inside", "_start")

    def __init__(self, *, inside: bool = False, markers: tuple[str, str] = THINK) -> None:
        super().__init__(self._begin)
        self._start = markers[0]
        self._end = Markers(markers[1])
        self._inside = inside

    def flush(self) -> list[Part]:
        rest = self._rest()
        if not rest:
            return []
        return [Reasoning(rest) if self._inside else rest]

    def _begin(self, text: str, pos: int, parts: list[Part]) -> int:
        end = after_space(text, pos)
        if not self._inside:
            self._keep(text[pos:end])
        if text.startswith(self._start, end):
            self._forget()
            self._inside = True
            self._step = self._before_thought
            return end + len(self._start)
        if len(text) - end < len(self._start) and self._start.startswith(text[end:]):
            return self._wait(text, end)
        self._step = self._thought if self._inside else self._answer
        return end

    def _before_thought(self, text: str, pos: int, parts: list[Part]) -> int:
        self._step = self._thought
        return self._skip_space(text, pos, self._before_thought)

    def _thought(self, text: str, pos: int, parts: list[Part]) -> int:
        found = self._end.search(text, pos)
        end = found.start() if found else self._end.partial(text, pos)
        self._think(text[pos:end], parts)
        if found is None:
            return self._wait(text, end)
        self._forget()
        self._inside = False
        self._step = self._before_answer
        return found.end()

    def _think(self, text: str, parts: list[Part]) -> None:
        thought = text.rstrip(SPACE)
        if thought:
            parts.append(Reasoning(self._take() + thought))
        self._keep(text[len(thought) :])

    def _before_answer(self, text: str, pos: int, parts: list[Part]) -> int:
        self._step = self._answer
        return self._skip_space(text, pos, self._before_answer)

    def _answer(self, text: str, pos: int, parts: list[Part]) -> int:
        parts.append(self._take() + text[pos:])
        return len(text)

    def _skip_space(self, text: str, pos: int, again: Callable[[str, int, list[Part]], int]) -> int:
        end = after_space(text, pos)
        if end == len(text):
            self._step = again
        return end


class VllmReasoningParser:
    """One of vLLM's parsers whose format isn't a pair of markers: it's asked once, at the end, and all is held until
    then."""

    __slots__ = ("_held", "_inside", "_name", "_text", "_tokenizer")

    def __init__(self, name: str, tokenizer: Any, *, inside: bool = False) -> None:
        self._name = name
        self._tokenizer = tokenizer
        self._inside = inside
        self._text: list[str] = []
        self._held = 0

    @property
    def held(self) -> int:
        return self._held

    def push(self, text: str) -> list[Part]:
        self._text.append(text)
        self._held += len(text)
        return []

    def flush(self) -> list[Part]:
        text = "".join(self._text)
        self._text.clear()
        self._held = 0
        return self._extract(text) if text else []

    def _extract(self, text: str) -> list[Part]:
        try:
            thought, answer = _vllm_parser(self._name, self._tokenizer).extract_reasoning(text, _request())
        except Exception as error:  # whatever a parser makes of text it didn't expect, the text isn't lost
            log.warning("vLLM's reasoning parser %s failed on an answer: %s", self._name, type(error).__name__)
            return [Reasoning(text) if self._inside else text]
        parts: list[Part] = []
        if thought:
            parts.append(Reasoning(thought))
        if answer:
            parts.append(answer)
        return parts


@dataclass(frozen=True, slots=True)
class ReasoningFactory:
    """Makes the parser of one answer; `special_tokens`: the markers are tokens that must not be skipped.

    A prompt that ends with `start`, where the format has one, has opened the thinking already.
    """

    make: Callable[[bool], Parser]
    special_tokens: bool = False
    start: str | None = None

    def __call__(self, inside: bool) -> Parser:
        return self.make(inside)


REASONING_PARSERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"think": THINK, "qwen3": THINK, "deepseek_r1": THINK, "deepseek_v3": THINK}
)

# Their markers delimit more than thinking, or are followed by a word that is no thought.
NOT_A_PAIR = frozenset({"gemma4", "inkling", "kimi_k3"})

# Only a name in vLLM: its own server reads these from token ids, elsewhere.
STUBS = frozenset({"openai_gptoss"})


def reasoning_parser_factory(name: str, tokenizer: Any) -> ReasoningFactory:
    if name in REASONING_PARSERS:
        return _pair(REASONING_PARSERS[name], special_tokens=False)
    known = [known for known in _vllm_names() if known not in STUBS]
    if name not in known:
        listed = ", ".join(sorted({*REASONING_PARSERS, *known}))
        raise ValueError(f"unknown reasoning parser {name!r}: known are {listed}")
    try:
        parser = _vllm_parser(name, tokenizer)
    except Exception as error:
        raise ValueError(f"the reasoning parser {name!r} does not fit the model's tokenizer") from error
    special_tokens = not parser.adjust_request(_request()).skip_special_tokens
    start, end = parser.reasoning_start_str, parser.reasoning_end_str
    if start and end and name not in NOT_A_PAIR:
        return _pair((start, end), special_tokens=special_tokens)
    return ReasoningFactory(lambda inside: VllmReasoningParser(name, tokenizer, inside=inside), special_tokens)


def _pair(markers: tuple[str, str], *, special_tokens: bool) -> ReasoningFactory:
    return ReasoningFactory(lambda inside: ThinkParser(inside=inside, markers=markers), special_tokens, markers[0])


def _vllm_names() -> list[str]:
    from vllm.reasoning import ReasoningParserManager

    return list(ReasoningParserManager.list_registered())


def _vllm_parser(name: str, tokenizer: Any) -> Any:
    from vllm.reasoning import ReasoningParserManager

    return ReasoningParserManager.get_reasoning_parser(name)(tokenizer)


def _request() -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(messages=[], model="")
