"""Which parsers read an answer: the configured ones, where the request makes them apply."""

from functools import partial
from typing import Any

from sampling.reasoning import reasoning_parser_factory
from sampling.tools import CallArrayParser, NamedCallParser, tool_parser_factory
from server.api.conversation import Conversation, Named
from server.config import ChatSettings
from server.engine.protocol import ModelTokenizer
from server.errors import InvalidRequest
from server.request import Reading


class AnswerParsers:
    """Built once the model is known. Raises ValueError for a parser there is none of."""

    def __init__(self, settings: ChatSettings, tokenizer: ModelTokenizer) -> None:
        self._settings = settings
        self._tools = tool_parser_factory(settings.tool_parser, tokenizer.hf) if settings.tool_parser else None
        self._reasoning = (
            reasoning_parser_factory(settings.reasoning_parser, tokenizer.hf) if settings.reasoning_parser else None
        )

    def check(self, conversation: Conversation) -> None:
        """Raises InvalidRequest for tools the model may call in a syntax that nobody here reads."""
        if conversation.offered and not conversation.forced and self._tools is None:
            raise InvalidRequest(
                "tools: this server has no tool parser for its model, so `tool_choice` must forbid or force a call. "
                "The operator chooses a parser with the setting `chat.tool_parser`.",
                param="tools",
                code="tool_parser_not_configured",
            )

    def template_kwargs(self, conversation: Conversation) -> dict[str, Any]:
        """Raises InvalidRequest for one that isn't on the list or isn't a plain value."""
        given = conversation.template_kwargs
        for name, value in given.items():
            if name not in self._settings.template_kwargs:
                allowed = ", ".join(self._settings.template_kwargs)
                raise InvalidRequest(
                    f"chat_template_kwargs: only {allowed} may be given.", param="chat_template_kwargs"
                )
            if not isinstance(value, bool | int | str) or len(str(value)) > 64:
                raise InvalidRequest(
                    f"chat_template_kwargs.{name}: must be true, false, a number or a short text.",
                    param="chat_template_kwargs",
                )
        hints = conversation.template_hints.items()
        known = {name: hint for name, hint in hints if hint is not None and name in self._settings.template_kwargs}
        return known | dict(given)

    def reading(self, conversation: Conversation, prompt: str) -> Reading:
        return Reading(
            reasoning=self._reasoning_of(prompt),
            tools=self._tools_of(conversation),
            parallel_calls=conversation.parallel_calls,
            run_limit=self._settings.run_limit,
        )

    def needs_special_tokens(self, conversation: Conversation) -> bool:
        """Some formats mark calls or thoughts with special tokens, which the text must then show to the parser."""
        if self._reasoning is not None and self._reasoning.special_tokens:
            return True
        return self._reads_calls(conversation) and self._tools is not None and self._tools.special_tokens

    def _reads_calls(self, conversation: Conversation) -> bool:
        return bool(conversation.offered) and not conversation.forced

    def _tools_of(self, conversation: Conversation) -> Any:
        match conversation.tool_choice:
            case Named(name):
                return partial(NamedCallParser, name)
            case "required":
                return CallArrayParser
        if self._tools is None or not self._reads_calls(conversation):
            return None
        functions = [tool.for_template()["function"] for tool in conversation.offered]
        return partial(self._tools, functions)

    def _reasoning_of(self, prompt: str) -> Any:
        """A template may open the thinking itself."""
        if self._reasoning is None:
            return None
        start = self._reasoning.start
        return partial(self._reasoning, start is not None and prompt.rstrip().endswith(start))
