"""A model's tokenizer and chat template, from its folder."""

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import tokenizers
from transformers import AutoTokenizer

from server.errors import InvalidRequest


class FolderTokenizer:
    """Encodes with the `tokenizers` library (thread-safe, no state per call); transformers renders the template.

    In batches of one: `encode` itself holds the interpreter's lock, for seconds where the text is long.
    """

    def __init__(self, source: str, *, revision: str | None = None, trust_remote_code: bool = False) -> None:
        self.hf = AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=trust_remote_code)
        backend = getattr(self.hf, "backend_tokenizer", None)
        if not isinstance(backend, tokenizers.Tokenizer):
            raise ValueError(f"{source} has no fast tokenizer (tokenizer.json); streaming needs one")
        self.backend = backend
        self.backend.no_truncation()
        self.backend.no_padding()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return list(encoding.ids)

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **kwargs: Any
    ) -> str:
        """The template's text for `messages` and the opening of the assistant's turn.

        `kwargs` are the template's own. Raises InvalidRequest where the model has no template or its template refuses
        the messages.
        """
        if not self.hf.chat_template:
            raise InvalidRequest("This model has no chat template; use /v1/completions.", param="messages")
        offered: Any = [dict(tool) for tool in tools] or None
        try:
            text = self.hf.apply_chat_template(
                [dict(m) for m in messages], tools=offered, tokenize=False, add_generation_prompt=True, **kwargs
            )
        except (jinja2.TemplateError, TypeError, ValueError):  # a template trips over shapes it did not expect
            raise InvalidRequest("The model's chat template refuses these messages.", param="messages") from None
        return str(text)
