"""What travels through the pipeline: the request, its states, and the deltas that come back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from sampling.logprobs import TokenLogprob
from sampling.params import SamplingParams
from sampling.parts import Parser
from server.errors import ServeError

HIGH, NORMAL, LOW = range(3)  # priority classes


class FinishReason(StrEnum):
    """Why a sequence ended well. Everything else is an error, never an invented reason."""

    STOP = "stop"  # end-of-sequence token, a stop token or a stop string
    LENGTH = "length"  # the token limit


class RequestState(Enum):
    """Life of a request. Every transition is listed in `_NEXT` and made by `advance` alone."""

    WAITING = "waiting"  # for a permit, or for the engine's first token
    RUNNING = "running"  # tokens flow
    FINISHED = "finished"  # every sequence ended with a FinishReason
    FAILED = "failed"  # ended by an error of ours or of the engine
    CANCELLED = "cancelled"  # the client went away

    def advance(self, to: "RequestState") -> "RequestState":
        """The next state; raises ValueError for a transition that does not exist."""
        if to not in _NEXT[self]:
            raise ValueError(f"no transition from {self.value} to {to.value}")
        return to

    @property
    def ended(self) -> bool:
        return not _NEXT[self]


_ENDS = frozenset({RequestState.FINISHED, RequestState.FAILED, RequestState.CANCELLED})
_NEXT: dict[RequestState, frozenset[RequestState]] = {
    RequestState.WAITING: _ENDS | {RequestState.RUNNING},
    RequestState.RUNNING: _ENDS,
    RequestState.FINISHED: frozenset(),
    RequestState.FAILED: frozenset(),
    RequestState.CANCELLED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One sequence for the engine: a prompt in, sampled ids out. `id` is ours and unique.

    A lower `priority` goes first. Prompts share cached prefixes only with those of the same `cache_salt`.
    """

    id: str
    prompt_token_ids: Sequence[int]
    params: SamplingParams
    priority: int = 0
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How an answer's text is read: which parsers each choice gets, and whether it may call more than one tool."""

    reasoning: Callable[[], Parser] | None = None
    tools: Callable[[], Parser] | None = None
    parallel_calls: bool = True
    return_token_ids: bool = False
    run_limit: int = 0  # characters of blanks or digits on end that a constrained answer may have; 0: any number


PLAIN = Reading()


class Caller:
    """Whose request it is: what fairness, priority and quotas go by. Here: anybody, without limits.

    `rank` is the priority class (0 goes first). `owner` names whose stored things it may see.
    """

    owner: str | None = None
    rank: int = NORMAL
    timeout: float | None = None  # seconds for queue and generation, unless the request says otherwise

    @property
    def name(self) -> str:
        """For logs and fairness; never the key itself."""
        return self.owner or "anonymous"

    def clamp(self, priority: int) -> int:
        """The engine priority that a request asked for, as far as it may (a lower one goes first)."""
        return priority

    async def reserve(self, tokens: int) -> None:
        """Set aside what a request may use at most; raises RateLimited or LimitsUnavailable."""

    async def settle(self, reserved: int, used: int) -> None:
        """The request has ended: what it did not use of `reserved` is free again. Never raises."""


ANYBODY = Caller()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One call of a client after validation and tokenizing; protocols differ only in how the answer is encoded.

    Its choices are numbered prompt by prompt: choice `p * n + k` is the k-th continuation of prompt p.
    """

    id: str
    prompts: Sequence[Sequence[int]]
    params: SamplingParams
    n: int = 1
    streamed: bool = False
    reading: Reading = PLAIN
    priority: int = 0
    cache_salt: str | None = None
    caller: Caller = ANYBODY
    timeout: float | None = None  # seconds for queue and generation; None: the server's own
    shortened: bool = False  # its max_tokens is less than was asked for, since others wait

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    def sequences(self) -> list[EngineRequest]:
        """One engine request per choice; with a seed, continuation k samples with seed + k."""
        return [
            EngineRequest(f"{self.id}-{p * self.n + k}", prompt, self._params_of(k), self.priority, self.cache_salt)
            for p, prompt in enumerate(self.prompts)
            for k in range(self.n)
        ]

    def _params_of(self, k: int) -> SamplingParams:
        if self.params.seed is None or k == 0:
            return self.params
        return replace(self.params, seed=(self.params.seed + k + 2**63) % 2**64 - 2**63)  # stays a signed 64-bit number


@dataclass(slots=True)
class TokenDelta:
    """What one engine step brought for one sequence. Exactly one delta carries `finish_reason` or `error`: the last.

    Stamps are monotonic ns. The first delta tells `scheduled_ns`. Where asked for, `logprobs` has one entry
    per id, and the first delta has one per prompt token, None for the first.
    """

    token_ids: Sequence[int]
    finish_reason: FinishReason | None = None
    error: ServeError | None = None
    stop_token: bool = False  # the last id ended the sequence and is not part of the text
    scheduled_ns: int = 0
    sampled_ns: int = 0
    received_ns: int = 0
    sample_ns: int = 0  # what sampling took in this step, for the whole batch; 0: not known
    logprobs: Sequence[TokenLogprob] | None = None
    prompt_logprobs: Sequence[TokenLogprob | None] | None = None
    cached_tokens: int = 0  # of the prompt, found in the prefix cache


def reservation(request: GenerationRequest, most_output: int) -> int:
    """Tokens to set aside for a request: its prompts, and for each answer its limit but no more than `most_output`."""
    answers = len(request.prompts) * request.n
    return request.prompt_tokens + answers * min(request.params.max_tokens, most_output)
