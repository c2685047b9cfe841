"""Log probabilities on the wire: OpenAI's two shapes, and vLLM's for prompts."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import tokenizers

from sampling.detokenizer import token_bytes
from sampling.logprobs import TokenLogprob


class TokenNames:
    """Tokens as text, and as the bytes they stand for: a token may end within a character."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer

    def chat(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        """`choices[].logprobs` of chat."""
        return {"content": [self._chat_entry(entry) for entry in entries], "refusal": None}

    def completions(
        self, entries: Sequence[TokenLogprob | None], ids: Sequence[int], offsets: Sequence[int]
    ) -> dict[str, Any]:
        """`choices[].logprobs` of completions. A prompt's first token has an id and no entry."""
        return {
            "text_offset": list(offsets),
            "tokens": [self.text(token_id) for token_id in ids],
            "token_logprobs": [entry.logprob if entry else None for entry in entries],
            "top_logprobs": [self._alternatives(entry) if entry else None for entry in entries],
        }

    def prompt(self, entries: Sequence[TokenLogprob | None]) -> list[dict[str, Any] | None]:
        """vLLM's `prompt_logprobs`: per token the alternatives by id, the token itself among them."""
        return [self._prompt_entry(entry) if entry else None for entry in entries]

    def text(self, token_id: int) -> str:
        return token_bytes(self._tokenizer, token_id).decode(errors="replace")

    def _chat_entry(self, entry: TokenLogprob) -> dict[str, Any]:
        top = [self._named(token_id, logprob) for token_id, logprob in entry.top]
        return self._named(entry.token_id, entry.logprob) | {"top_logprobs": top}

    def _named(self, token_id: int, logprob: float) -> dict[str, Any]:
        spelt = token_bytes(self._tokenizer, token_id)
        return {"token": spelt.decode(errors="replace"), "logprob": logprob, "bytes": list(spelt)}

    def _alternatives(self, entry: TokenLogprob) -> dict[str, float]:
        """By text, as OpenAI has it: of tokens that look alike the likeliest stays. The sampled one is among them."""
        found: dict[str, float] = {}
        for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
            found.setdefault(self.text(token_id), logprob)
        return found

    def _prompt_entry(self, entry: TokenLogprob) -> dict[str, Any]:
        ranked = [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(entry.top, 1)]
        return {
            str(token_id): {"logprob": logprob, "rank": rank, "decoded_token": self.text(token_id)}
            for token_id, logprob, rank in [(entry.token_id, entry.logprob, entry.rank), *ranked]
        }


@lru_cache(maxsize=8)
def token_names(tokenizer: tokenizers.Tokenizer) -> TokenNames:
    return TokenNames(tokenizer)
