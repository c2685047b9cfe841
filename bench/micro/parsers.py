"""What the parsers of an answer cost: time per token, over answers of several lengths.

    python -m bench.micro.parsers --tokens 500 1000 4000 16000 --repeat 5

Prints one JSON line per parser: the best microseconds per token of the repeats, by the number of tokens. A token is a
piece of four characters. The cost must not grow with the length.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence

from sampling.parts import Parser
from sampling.reasoning import ThinkParser
from sampling.tools import CallArrayParser, HermesParser, Llama3JsonParser, NamedCallParser, Qwen3XmlParser

TOKEN_CHARS = 4
LINE = r'if x["key"] == \"v\": print({y}, [z])\n'


def _filled(head: str, line: str, tail: str, tokens: int) -> str:
    return head + line * ((tokens * TOKEN_CHARS - len(head) - len(tail)) // len(line)) + tail


def _json_string(tokens: int, head: str, tail: str) -> str:
    """Arguments of one long string, full of escapes and brackets."""
    return _filled(head + '{"code": "', json.dumps(LINE)[1:-1], '"}' + tail, tokens)


def _json_numbers(tokens: int, head: str, tail: str) -> str:
    """Arguments of many small values."""
    return _filled(head + '{"rows": [{}', ', {"a": 1, "b": [2]}', "]}" + tail, tokens)


ANSWERS: Mapping[str, tuple[Callable[[], Parser], Callable[[int], str]]] = {
    "think": (ThinkParser, lambda n: _filled("<think>\n", "Let me see. \n\nA < b, so", "\n</think>\n\nYes.", n)),
    "think, plain answer": (ThinkParser, lambda n: _filled("", "Let me see. \n\nA < b, so", "", n)),
    "hermes, a string": (
        HermesParser,
        lambda n: _json_string(n, '<tool_call>\n{"name": "f", "arguments": ', "}\n</tool_call>"),
    ),
    "hermes, numbers": (
        HermesParser,
        lambda n: _json_numbers(n, '<tool_call>\n{"name": "f", "arguments": ', "}\n</tool_call>"),
    ),
    "hermes, arguments first": (
        HermesParser,
        lambda n: _json_string(n, '<tool_call>\n{"arguments": ', ', "name": "f"}\n</tool_call>'),
    ),
    "hermes, arguments in a string": (
        HermesParser,
        lambda n: _filled('<tool_call>{"name": "f", "arguments": "', json.dumps(LINE)[1:-1], '"}</tool_call>', n),
    ),
    "hermes, plain answer": (HermesParser, lambda n: _filled("", "Let me see. \n\nA < b, so", "", n)),
    "llama3_json": (Llama3JsonParser, lambda n: _json_string(n, '{"name": "f", "parameters": ', "}")),
    "qwen3_xml, a string": (
        Qwen3XmlParser,
        lambda n: _filled(
            "<tool_call>\n<function=f>\n<parameter=code>\n", "a < b\n  c", "\n</parameter>\n</function>", n
        ),
    ),
    "qwen3_xml, an array": (
        lambda: Qwen3XmlParser([{"name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}]),
        lambda n: _filled("<function=f>\n<parameter=a>\n[0", ", 123", "]\n</parameter>\n</function>", n),
    ),
    "call array": (CallArrayParser, lambda n: _json_string(n, '[{"name": "f", "parameters": ', "}]")),
    "named call": (lambda: NamedCallParser("f"), lambda n: _json_string(n, "", "")),
}


def us_per_token(make: Callable[[], Parser], text: str, repeat: int) -> float:
    tokens = [text[start : start + TOKEN_CHARS] for start in range(0, len(text), TOKEN_CHARS)]
    return min(_time_ns(make(), tokens) for _ in range(repeat)) / 1e3 / len(tokens)


def _time_ns(parser: Parser, tokens: Sequence[str]) -> int:
    begin = time.perf_counter_ns()
    for token in tokens:
        parser.push(token)
    parser.flush()
    return time.perf_counter_ns() - begin


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[500, 1000, 4000, 16000])
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args(argv)
    for name, (make, answer) in ANSWERS.items():
        costs = {str(tokens): round(us_per_token(make, answer(tokens), args.repeat), 2) for tokens in args.tokens}
        print(json.dumps({"parser": name, "us_per_token": costs}))


if __name__ == "__main__":
    main()
