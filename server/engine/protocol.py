"""The seam between the pipeline and whatever generates tokens. Names no engine's types."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import tokenizers

from server.request import EngineRequest, TokenDelta

OnStep = Callable[[TokenDelta], None]
"""Takes each step's delta; the last one carries a finish reason or an error. Must not block and must not raise."""

OnReleased = Callable[[], None]
"""Called once, when the engine holds nothing of a sequence any more: its slot may be used again. Must not raise."""


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
    """Facts of the loaded model and of the engine that runs it.

    `default_sampling` holds its generation_config's values by SamplingParams' names. A step has room for
    `max_num_seqs` sequences and `max_batch_tokens` tokens. `shapes`: it does what a request's `Shaping` says.
    """

    name: str
    root: str
    max_model_len: int
    vocab_size: int
    tokenizer: ModelTokenizer
    max_num_seqs: int = 256
    max_batch_tokens: int = 8192
    default_sampling: Mapping[str, Any] = field(default_factory=dict)
    shapes: bool = True


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

    @property
    def last_step_ns(self) -> int:
        """When the latest step's outputs came (monotonic ns); 0 before the first."""
        ...

    async def start(self) -> None:
        """Load the model and generate once; afterwards the engine is ready."""
        ...

    def submit(self, request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> Handle:
        """Queue a sequence. Raises EngineDied; a refusal found later arrives as a delta with an error.

        After a `submit` that returned, `on_released` comes once: with the last delta, or when an abort has reached the
        engine. It comes before anything that is submitted later reaches it.
        """
        ...

    async def close(self) -> None: ...
