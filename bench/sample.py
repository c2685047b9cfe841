"""What one request looked like from its client, in raw stamps (CLOCK_MONOTONIC, ns), and what follows from them."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

NO_CHOICE = -1


class StreamEvent(NamedTuple):
    """One choice's share of one event. An event without choices (usage, [DONE]) has choice NO_CHOICE."""

    stamp_ns: int
    choice: int
    generated: bool
    finish_reason: str | None


@dataclass(slots=True)
class RequestSample:
    """`error` is a short reason, fit for counting; `detail` says more. All properties are None where undefined."""

    sent_ns: int = 0
    scheduled_ns: int | None = None
    headers_ns: int | None = None
    done_ns: int | None = None
    status: int | None = None
    error: str | None = None
    detail: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    timings: dict[str, Any] | None = None
    events: list[StreamEvent] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def text(self) -> str:
        return "".join(self.texts[choice] for choice in sorted(self.texts))

    @property
    def origin_ns(self) -> int:
        """When the wait began: when the request was due, if it had a schedule."""
        return self.sent_ns if self.scheduled_ns is None else self.scheduled_ns

    @property
    def lateness_ns(self) -> int | None:
        return None if self.scheduled_ns is None else self.sent_ns - self.scheduled_ns

    @property
    def generated_stamps(self) -> dict[int, list[int]]:
        stamps: dict[int, list[int]] = {}
        for event in self.events:
            if event.generated:
                stamps.setdefault(event.choice, []).append(event.stamp_ns)
        return stamps

    @property
    def generated_events(self) -> int:
        return sum(event.generated for event in self.events)

    @property
    def finish_reasons(self) -> dict[int, str]:
        return {event.choice: event.finish_reason for event in self.events if event.finish_reason is not None}

    @property
    def ttft_ns(self) -> int | None:
        first = next((event.stamp_ns for event in self.events if event.generated), None)
        return None if first is None else first - self.origin_ns

    @property
    def gaps_ns(self) -> list[int]:
        return [after - before for stamps in self.generated_stamps.values() for before, after in pairwise(stamps)]

    @property
    def tpot_ns(self) -> float | None:
        """Of a single choice with at least two tokens: usage doesn't say how several choices shared theirs."""
        stamps = self.generated_stamps
        if len(stamps) != 1 or self.output_tokens is None or self.output_tokens < 2:
            return None
        (only,) = stamps.values()
        return (only[-1] - only[0]) / (self.output_tokens - 1)

    @property
    def e2e_ns(self) -> int | None:
        return None if self.done_ns is None else self.done_ns - self.origin_ns
