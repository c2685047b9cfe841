"""How far a run is: counts, and the latencies seen since it was last asked."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.sample import RequestSample


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the measured requests. `done` ones include the `failed`; `tokens` are of those in flight as well.

    `seconds` count from the start of the measured part. The lists are what is new since the previous Progress, in ns.
    """

    done: int
    failed: int
    in_flight: int
    total: int
    tokens: int
    seconds: float
    ttft_ns: list[int] = field(default_factory=list)
    gaps_ns: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Watched:
    """A sample that grows, and how many of its events have been looked at."""

    sample: RequestSample
    seen: int = 0
    generated: int = 0
    latest_ns: int | None = None


class Meter:
    """Knows the samples in flight; looks at what is new in them only when asked."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._live: set[Watched] = set()
        self._ended: list[Watched] = []
        self._done = 0
        self._failed = 0
        self._tokens = 0

    def begin(self, sample: RequestSample) -> Watched:
        watched = Watched(sample)
        self._live.add(watched)
        return watched

    def end(self, watched: Watched) -> None:
        sample = watched.sample
        self._live.discard(watched)
        self._ended.append(watched)
        self._done += 1
        self._failed += not sample.ok
        self._tokens += (sample.output_tokens or 0) if sample.ok else 0

    def progress(self, origin_ns: int) -> Progress:
        """A request is in flight from the moment it is due."""
        now = time.monotonic_ns()
        started = [watched for watched in self._live if watched.sample.origin_ns <= now]
        ttfts: list[int] = []
        gaps: list[int] = []
        for watched in [*self._ended, *started]:
            _look(watched, ttfts, gaps)
        self._ended.clear()
        # Until the server tells how many tokens there were, events are the best there is.
        tokens = self._tokens + sum(watched.generated for watched in started)
        seconds = max(now - origin_ns, 0) / 1e9
        return Progress(self._done, self._failed, len(started), self._total, tokens, seconds, ttfts, gaps)


def _look(watched: Watched, ttfts: list[int], gaps: list[int]) -> None:
    """A request asks for one choice, so that its events follow one another."""
    events = watched.sample.events
    for event in events[watched.seen :]:
        if event.generated:
            if watched.latest_ns is None:
                ttfts.append(event.stamp_ns - watched.sample.origin_ns)
            else:
                gaps.append(event.stamp_ns - watched.latest_ns)
            watched.latest_ns = event.stamp_ns
            watched.generated += 1
    watched.seen = len(events)


def together(parts: Sequence[Progress], total: int, ttft_ns: list[int], gaps_ns: list[int]) -> Progress:
    """The counts of several processes that share a run, beside what is new."""
    return Progress(
        done=sum(part.done for part in parts),
        failed=sum(part.failed for part in parts),
        in_flight=sum(part.in_flight for part in parts),
        total=total,
        tokens=sum(part.tokens for part in parts),
        seconds=max((part.seconds for part in parts), default=0.0),
        ttft_ns=ttft_ns,
        gaps_ns=gaps_ns,
    )
