"""The parsers of tool calls, by the name of the format: ours, and vLLM's for the formats that have none here."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sampling.incremental import Markers
from sampling.parts import Arguments, Parser, Part, ToolCall
from sampling.tool_json import CallArrayParser, HermesParser, Llama3JsonParser, NamedCallParser
from sampling.tool_text import MarkedCallParser
from sampling.tool_xml import Qwen3XmlParser

__all__ = [
    "TOOL_PARSERS",
    "CallArrayParser",
    "HermesParser",
    "Llama3JsonParser",
    "NamedCallParser",
    "Qwen3XmlParser",
    "ToolParserFactory",
    "VllmParser",
    "tool_parser_factory",
]

log = logging.getLogger(__name__)

Tools = Sequence[Mapping[str, Any]]

# Where vLLM's parsers name the text that begins a call. Names that end in these are of parts within one.
NAMES: Final = ("start", "begin", "bot", "open", "prefix")
NO_NAMES: Final = ("end", "close", "suffix")

# Formats whose parser names no marker. None: anything may be the beginning of a call.
UNNAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "apertus": ("<|tools_prefix|>",),
    "internlm": ("<|action_start|>",),
    "lfm2": ("<|tool_call_start|>",),
}

# Only a name in vLLM: its own server reads these from token ids, elsewhere.
STUBS: Final = frozenset({"openai"})


class VllmParser(MarkedCallParser):
    """Text streams until a marker begins a call; all from there on is held, and vLLM's parser is asked once, at the
    end. A fault of that parser leaves text."""

    __slots__ = ("_name", "_tokenizer", "_tools")

    def __init__(self, name: str, tokenizer: Any, tools: Tools, markers: Markers | None) -> None:
        super().__init__(markers or Markers("<"))
        self._name = name
        self._tokenizer = tokenizer
        self._tools = tools
        if markers is None:
            self._step = self._hold

    def flush(self) -> list[Part]:
        if self._step != self._hold:
            return super().flush()
        rest = self._rest()
        return _extract(self._name, self._tokenizer, self._tools, rest) if rest else []

    def _marked(self, marker: str, parts: list[Part]) -> None:
        self._keep(marker)
        self._step = self._hold

    def _hold(self, text: str, pos: int, parts: list[Part]) -> int:
        self._keep(text[pos:])
        return len(text)


@dataclass(frozen=True, slots=True)
class ToolParserFactory:
    """Makes the parser of one answer; `special_tokens`: it reads only text that has its special tokens."""

    make: Callable[[Tools], Parser]
    special_tokens: bool = False

    def __call__(self, tools: Tools) -> Parser:
        return self.make(tools)


_HERMES = ToolParserFactory(lambda tools: HermesParser(), HermesParser.special_tokens)
_LLAMA3 = ToolParserFactory(lambda tools: Llama3JsonParser(), Llama3JsonParser.special_tokens)
_QWEN3 = ToolParserFactory(Qwen3XmlParser, Qwen3XmlParser.special_tokens)

TOOL_PARSERS: Mapping[str, ToolParserFactory] = MappingProxyType(
    {"hermes": _HERMES, "llama3_json": _LLAMA3, "llama4_json": _LLAMA3, "qwen3_coder": _QWEN3, "qwen3_xml": _QWEN3}
)


def tool_parser_factory(name: str, tokenizer: Any) -> ToolParserFactory:
    """Ours, or else vLLM's of that name; vLLM isn't imported for ours."""
    if name in TOOL_PARSERS:
        return TOOL_PARSERS[name]
    known = [known for known in _names() if known not in STUBS]
    if name not in known:
        raise ValueError(f"unknown tool parser {name!r}: known are {', '.join(sorted({*TOOL_PARSERS, *known}))}")
    try:
        parser = _parser_class(name)(tokenizer, [])
    except Exception as error:
        raise ValueError(f"the tool parser {name!r} does not fit the model's tokenizer") from error
    markers = _markers_of(name, parser)
    return ToolParserFactory(lambda tools: VllmParser(name, tokenizer, tools, markers), _needs_special_tokens(parser))


def _names() -> list[str]:
    from vllm.tool_parsers import ToolParserManager

    return list(ToolParserManager.list_registered())


def _parser_class(name: str) -> Any:
    from vllm.tool_parsers import ToolParserManager

    return ToolParserManager.get_tool_parser(name)


def _markers_of(name: str, parser: Any) -> Markers | None:
    """Of a parser of vLLM, what may begin a call; None if that can't be known."""
    found = UNNAMED.get(name) or tuple(_named(parser)) or tuple(_terminals(parser))
    return Markers(*_shortest_first(found)) if found else None


def _needs_special_tokens(parser: Any) -> bool:
    return not parser.adjust_request(_request([{"name": "f", "parameters": {"type": "object"}}])).skip_special_tokens


def _extract(name: str, tokenizer: Any, tools: Tools, text: str) -> list[Part]:
    try:
        request = _request(tools)
        found = _parser_class(name)(tokenizer, request.tools).extract_tool_calls(text, request)
        calls = [(call.function.name, call.function.arguments) for call in found.tool_calls]
    except Exception as error:  # whatever a parser makes of text it didn't expect, the text isn't lost
        log.warning("vLLM's tool parser %s failed on an answer: %s", name, type(error).__name__)
        return [text]
    if not calls:
        return [_without_markup(text, found.content)]
    parts: list[Part] = [found.content] if found.content and not found.content.isspace() else []
    for called, arguments in calls:
        parts += [ToolCall(called), Arguments(arguments or "{}")]
    return parts


def _without_markup(text: str, content: str | None) -> str:
    """Some formats mark text, too; of whitespace the parsers are careless."""
    return content if content and content.strip() != text.strip() else text


def _request(tools: Tools) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    functions = [{"type": "function", "function": dict(tool)} for tool in tools]
    return ChatCompletionRequest(messages=[], model="", tools=functions or None)


def _named(parser: Any) -> Iterator[str]:
    for key in dir(parser):
        words = key.lower().split("_")
        if key.startswith("__") or not set(words).intersection(NAMES) or set(words).intersection(NO_NAMES):
            continue
        value = getattr(parser, key, None)
        if isinstance(value, str) and value:
            yield value


def _terminals(parser: Any) -> Iterator[str]:
    """The grammar-driven parsers tell by their grammar."""
    config = getattr(getattr(parser, "_parser_engine", None), "parser_engine_config", None)
    for key, values in getattr(config, "terminals", {}).items():
        if key.startswith(("TOOL", "INVOKE_PREFIX", "FUNC_PREFIX", "MSG", "TEXT_START")) and "END" not in key:
            yield from (values,) if isinstance(values, str) else values


def _shortest_first(found: Sequence[str]) -> list[str]:
    """None that would be completed only after another one within it."""
    ordered = sorted(set(found), key=len)
    return [marker for i, marker in enumerate(ordered) if not any(other in marker[:-1] for other in ordered[:i])]
