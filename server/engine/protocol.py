"""The seam between the pipeline and whatever generates tokens. Names no engine's types."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import tokenizers

from server.request import EngineRequest, TokenDelta

OnStep = Callable[[TokenDelta], None]
"""Takes each step's delta; the last one carries a finish reason or an error. Must not block and must not raise."""


class ModelTokenizer(Protocol):
    """What the front end needs of a model's tokenizer."""

    backend: tokenizers.Tokenizer
    hf: Any  # transformers' own, for parsers that want one

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **kwargs: Any
    ) -> str:
        """The chat template's text for `messages`, ready for the assistant's turn; raises InvalidRequest."""
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts of the loaded model. `default_sampling` holds its generation_config's values by SamplingParams' names."""

    name: str
    root: str
    max_model_len: int
    vocab_size: int
    tokenizer: ModelTokenizer
    default_sampling: Mapping[str, Any] = field(default_factory=dict)


class Handle(Protocol):
    """A submitted request."""

    def abort(self) -> None:
        """Stop generating and call back no more. Synchronous, idempotent, harmless after the end."""
        ...


class Engine(Protocol):
    """Generates tokens and pushes them. `start` before the first `submit`, `close` once at the end."""

    @property
    def model(self) -> ModelInfo: ...

    @property
    def alive(self) -> bool:
        """False once the engine can no longer generate."""
        ...

    async def start(self) -> None:
        """Load the model and generate once; afterwards the engine is ready."""
        ...

    def submit(self, request: EngineRequest, on_step: OnStep) -> Handle:
        """Queue a sequence. Raises EngineDied; a refusal found later arrives as a delta with an error."""
        ...

    async def close(self) -> None: ...
