"""`text_completion`, whole and in chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers

from sampling.detokenizer import Detokenizer
from sampling.logprobs import Released, TokenLogprob
from sampling.parts import Part
from server.api.logprobs import TokenNames
from server.api.openai_shape import Extras, OpenAIShape
from server.request import GenerationRequest
from server.streaming.choice import Choice
from server.streaming.sse import json_bytes
from server.streaming.stream import Stream


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt as its answer begins with it, and where each of its tokens begins in that text."""

    text: str = ""
    offsets: Sequence[int] = ()

    @classmethod
    def of(cls, backend: tokenizers.Tokenizer, given: object, ids: Sequence[int]) -> "Echo":
        """A text as the client wrote it: of special tokens, only those that the client wrote count."""
        whole = str(backend.decode(ids, skip_special_tokens=False))
        text = given if isinstance(given, str) else whole
        detokenizer = Detokenizer(backend, (), skip_special_tokens=text != whole)
        offsets, length = [], 0
        for token_id in ids:
            offsets.append(length)  # of a token that completes no character, where the character begins
            length += len(detokenizer.push((token_id,)))
        return cls(text, offsets)


NO_ECHO = Echo()


class CompletionShape(OpenAIShape):
    """`echoes` has the text of each prompt when the answer is to begin with it."""

    def __init__(
        self,
        generation: GenerationRequest,
        model: str,
        names: TokenNames,
        *,
        extras: Extras,
        echoes: Sequence[Echo] = (),
        prompt_logprobs: int | None = None,
    ) -> None:
        super().__init__(
            f"cmpl-{generation.id.removeprefix('req-')}",
            "text_completion",
            model,
            prompt_tokens=generation.prompt_tokens,
            extras=extras,
            chunk_end=b"",
        )
        self._generation = generation
        self._names = names
        self._echoes = echoes
        self._prompt_logprobs = prompt_logprobs

    def encoder(self) -> "CompletionShape":
        return self

    def delta(self, choice: Choice, parts: Sequence[Part]) -> bytes:
        text = "".join(part for part in parts if isinstance(part, str))
        if self._extras.per_token or (self._echoes and not choice.opened):
            return self._event(choice, text)
        return b'%b%d,"text":%b%b' % (self._head, choice.index, json_bytes(text), self._tail)

    def finish(self, choice: Choice, timings: dict[str, Any] | None) -> bytes:
        return self._event(choice, "", reason=choice.finish_reason, timings=timings)

    def body(self, stream: Stream) -> dict[str, Any]:
        return self._whole(stream, "text_completion", [self._choice(choice) for choice in stream.choices])

    def _event(
        self, choice: Choice, text: str, *, reason: str | None = None, timings: dict[str, Any] | None = None
    ) -> bytes:
        content = self._content(choice, text, choice.released, first=not choice.opened)
        choice.released = Released()
        content["finish_reason"] = reason
        return self._chunk(choice, content, timings)

    def _choice(self, choice: Choice) -> dict[str, Any]:
        content = self._content(choice, choice.answer.text, choice.answer.tokens, first=True)
        content["finish_reason"] = choice.finish_reason
        if self._prompt_logprobs is not None and choice.prompt_logprobs is not None:
            content["prompt_logprobs"] = self._names.prompt(_fewer(choice.prompt_logprobs, self._prompt_logprobs))
        return content

    def _content(self, choice: Choice, text: str, released: Released, *, first: bool) -> dict[str, Any]:
        prompt = choice.index // self._generation.n
        echo = self._echoes[prompt] if self._echoes else NO_ECHO
        content: dict[str, Any] = {"index": choice.index, "text": echo.text + text if first else text}
        content["logprobs"] = self._logprobs(choice, released, echo, first=first)
        if self._extras.token_ids:
            content["token_ids"] = released.ids
            if first:
                content["prompt_token_ids"] = list(self._generation.prompts[prompt])
        return content

    def _logprobs(self, choice: Choice, released: Released, echo: Echo, *, first: bool) -> dict[str, Any] | None:
        if self._extras.logprobs is None:
            return None
        entries: list[TokenLogprob | None] = list(released.logprobs)
        ids = [entry.token_id for entry in released.logprobs]
        offsets = [len(echo.text) + offset for offset in released.offsets]
        if first and self._echoes:
            prompt = list(choice.sequence.prompt_token_ids)
            entries[:0] = _fewer(choice.prompt_logprobs or [None] * len(prompt), self._extras.logprobs)
            offsets[:0] = echo.offsets
            ids[:0] = prompt
        return self._names.completions(entries, ids, offsets) if entries else None


def _fewer(entries: Sequence[TokenLogprob | None], alternatives: int) -> list[TokenLogprob | None]:
    return [entry and entry._replace(top=entry.top[:alternatives]) for entry in entries]
