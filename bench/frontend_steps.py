"""How a front end kept up with its engine: the client's reads against the engine's own stamps of its steps.

Events name no step. But every step gives each running stream one token, so that while all streams run, the tokens are
as many as steps times streams; and where each token had an event of its own, a stream's events are of consecutive
steps.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from bench.sample import RequestSample


@dataclass(frozen=True)
class Kept:
    """While all of `streams` ran: `steps` of the engine in `seconds`, `events` read, and how late (ns, ascending).

    `late_ns` is from a step's stamp to the read of an event, of the streams that had an event per token.
    """

    streams: int
    steps: int
    seconds: float
    events: int
    late_ns: Sequence[int]

    @property
    def tokens(self) -> int:
        return self.steps * self.streams

    @property
    def events_per_token(self) -> float:
        return self.events / self.tokens if self.tokens else 0.0

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.seconds

    def late_ms(self, share: float) -> float | None:
        """That share of the events came no later."""
        return self.late_ns[min(int(share * len(self.late_ns)), len(self.late_ns) - 1)] / 1e6 if self.late_ns else None


def kept(samples: Sequence[RequestSample], steps: Sequence[int]) -> Kept:
    """`steps`: stamps of those that sampled, ascending, ns. Raises ValueError where the streams never ran together."""
    reads = [stamps for sample in samples for stamps in sample.generated_stamps.values()]
    start, end = max(stamps[0] for stamps in reads), min(stamps[-1] for stamps in reads)
    if start >= end or any(not sample.ok for sample in samples):
        raise ValueError("the streams did not all run at a time")
    late = [
        late
        for sample, stamps in zip(samples, reads, strict=True)
        if len(stamps) == sample.output_tokens
        for stamp, late in zip(stamps, lateness_ns(stamps, steps), strict=True)
        if start <= stamp <= end
    ]
    return Kept(
        streams=len(reads),
        steps=_within(steps, start, end),
        seconds=(end - start) / 1e9,
        events=sum(_within(stamps, start, end) for stamps in reads),
        late_ns=sorted(late),
    )


def lateness_ns(reads: Sequence[int], steps: Sequence[int]) -> list[int]:
    """Of a stream with an event per token: of all places among the steps, the last at which no event is early."""
    first = bisect_right(steps, reads[0]) - 1
    for place in range(min(first, len(steps) - len(reads)), -1, -1):
        found = [read - step for read, step in zip(reads, steps[place : place + len(reads)], strict=True)]
        if min(found) >= 0:
            return found
    raise ValueError("no steps that this stream could be of")


def _within(stamps: Sequence[int], start: int, end: int) -> int:
    return bisect_left(stamps, end) - bisect_left(stamps, start)
