"""Kinds of request that front ends have different work with: what each asks for, and what the servers need for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WORDS = "the river runs past the old mill and on to the sea where small boats wait for the wind "
# More than is ever generated: the call goes on until the token limit.
CALL = '<tool_call>\n{"name": "write", "arguments": {"text": "' + WORDS * 40
WRITE = {
    "type": "function",
    "function": {"name": "write", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},
}


@dataclass(frozen=True)
class Kind:
    """`fields` of the request; how many `sequences` it is for the engine; what the null executor says (None: words).

    `settings` are this server's, `flags` those of vLLM's own.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    sequences: int = 1
    text: str | None = None
    settings: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "plain": Kind(),
    "logprobs": Kind({"logprobs": True, "top_logprobs": 2}),
    "stop": Kind({"stop": ["what is never said"]}),
    "n4": Kind({"n": 4}, sequences=4),
    "tool": Kind(
        {"tools": [WRITE], "tool_choice": "auto"},
        text=CALL,
        settings=("chat.tool_parser=hermes",),
        flags=("--enable-auto-tool-choice", "--tool-call-parser=hermes"),
    ),
}
