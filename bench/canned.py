"""What the null executor answers, without vLLM: how long a step takes, which requests sample in it, and which token."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

CANNED_TEXT = " the river runs past the old mill and on to the sea where small boats wait for the wind"


@dataclass(frozen=True, slots=True)
class NullSettings:
    """What a step costs: `step + token * scheduled tokens`, then `sample`; what is said, as ids or as text.

    `stamps` is a file that gets a line for each step that sampled: when that was, monotonic ns.
    """

    step_ns: int
    token_ns: int
    sample_ns: int
    token_ids: tuple[int, ...] | None
    text: str
    stamps: str | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "NullSettings":
        """STREAMGAUGE_NULL_STEP_MS, _TOKEN_US, _SAMPLE_MS, _STAMPS; _TEXT, or _IDS (1,2,3): tokens, given in turn."""
        ids = env.get("STREAMGAUGE_NULL_IDS", "").strip()
        return cls(
            step_ns=round(float(env.get("STREAMGAUGE_NULL_STEP_MS", "20")) * 1e6),
            token_ns=round(float(env.get("STREAMGAUGE_NULL_TOKEN_US", "0")) * 1e3),
            sample_ns=round(float(env.get("STREAMGAUGE_NULL_SAMPLE_MS", "0")) * 1e6),
            token_ids=tuple(int(part) for part in ids.split(",")) if ids else None,
            text=env.get("STREAMGAUGE_NULL_TEXT", CANNED_TEXT),
            stamps=env.get("STREAMGAUGE_NULL_STAMPS"),
        )


class NewRequest(Protocol):
    """The part of vLLM's NewRequestData that matters here."""

    req_id: str
    num_computed_tokens: int
    prefill_token_ids: list[int] | None

    @property
    def prompt_len(self) -> int: ...
    @property
    def sampling_params(self) -> "Sampling | None": ...


class Sampling(Protocol):
    """The part of vLLM's SamplingParams that matters here."""

    @property
    def num_logprobs(self) -> int | None: ...


class KnownRequests(Protocol):
    """The part of vLLM's CachedRequestData that matters here."""

    req_ids: list[str]
    num_computed_tokens: list[int]
    num_output_tokens: list[int]


class Step(Protocol):
    """The part of vLLM's SchedulerOutput that matters here."""

    @property
    def scheduled_new_reqs(self) -> Sequence[NewRequest]: ...
    @property
    def scheduled_cached_reqs(self) -> KnownRequests: ...
    @property
    def num_scheduled_tokens(self) -> Mapping[str, int]: ...
    @property
    def finished_req_ids(self) -> AbstractSet[str]: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a request stands before a step."""

    computed: int
    generated: int


class CannedBatch:
    """All that a model runner has to remember: how long each prompt is, and whose log probabilities are wanted."""

    def __init__(self, token_ids: tuple[int, ...]) -> None:
        self._token_ids = token_ids
        self._prompt_lens: dict[str, int] = {}
        self._alternatives: dict[str, int] = {}

    def run(self, step: Step) -> dict[str, list[int]]:
        """The sampled token of each scheduled request; none where the step ends within its prompt."""
        # An id may finish and be taken again within one step: forget before learning.
        for req_id in step.finished_req_ids:
            self._prompt_lens.pop(req_id, None)
            self._alternatives.pop(req_id, None)
        progress = self._learn(step.scheduled_new_reqs) | _progress(step.scheduled_cached_reqs)
        return {
            req_id: self._sample(req_id, progress[req_id], scheduled)
            for req_id, scheduled in step.num_scheduled_tokens.items()
        }

    def alternatives(self, sampled: Iterable[str]) -> int | None:
        """The most that one of these requests wants beside each sampled token; None where none wants any."""
        return max((self._alternatives[req_id] for req_id in sampled if req_id in self._alternatives), default=None)

    def _learn(self, requests: Sequence[NewRequest]) -> dict[str, Progress]:
        progress = {}
        for new in requests:
            self._prompt_lens[new.req_id] = new.prompt_len
            if new.sampling_params is not None and new.sampling_params.num_logprobs is not None:
                self._alternatives[new.req_id] = new.sampling_params.num_logprobs
            # A preempted request that comes back as a new one brings what it had generated.
            known = new.prompt_len if new.prefill_token_ids is None else len(new.prefill_token_ids)
            progress[new.req_id] = Progress(new.num_computed_tokens, known - new.prompt_len)
        return progress

    def _sample(self, req_id: str, progress: Progress, scheduled: int) -> list[int]:
        if progress.computed + scheduled < self._prompt_lens[req_id] + progress.generated:
            return []
        return [self._token_ids[progress.generated % len(self._token_ids)]]


def _progress(known: KnownRequests) -> dict[str, Progress]:
    counts = zip(known.num_computed_tokens, known.num_output_tokens, strict=True)
    return {req_id: Progress(*count) for req_id, count in zip(known.req_ids, counts, strict=True)}
