"""When a run is lost: work piles up for as long as it lasts, or its objectives can't be met any more.

Work piles up where requests in flight and TTFT both rise for certain, as GuideLLM has it. Its test is of a line's slope
and supposes independent values; what is in flight now mostly was so before, and this ranks the means of long blocks.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import combinations
from math import floor

from bench.metrics import PERCENTILES
from bench.run.meter import Progress
from bench.run.objectives import Latency, Objectives, Share
from bench.run.result import Result

BLOCKS = 8
# Of the 28 pairs of blocks, those that rise less those that fall: 20 or more by chance in 1 of 140 (Mann 1945).
LEAST_RISES = 20
GROWTH = 1.5  # from the first block to the last: a trend that matters
SETTLING = 1 / 3  # of a run so far: from nothing in flight to as many as stay there it rises on any server
LEAST_SECONDS = 10.0
LEAST_FIRST_TOKENS = 4 * BLOCKS


class Watch:
    """Sees a run as it goes; `reason` says why it is lost, once it is."""

    def __init__(self, wanted: Objectives) -> None:
        self._wanted = wanted
        self.reason: str | None = None
        self._in_flight: list[tuple[float, float]] = []  # seconds, requests
        self._ttft: list[tuple[float, float]] = []  # seconds when it became known, ns
        self._looked = 0.0

    def __call__(self, progress: Progress) -> None:
        self._in_flight.append((progress.seconds, progress.in_flight))
        self._ttft += [(progress.seconds, ttft) for ttft in progress.ttft_ns]
        if self.reason is None and progress.seconds >= self._looked + 1:
            self._looked = progress.seconds
            self.reason = self._unreachable(progress) or self._piling_up(progress.seconds)

    @property
    def in_flight(self) -> Sequence[tuple[float, float]]:
        return self._in_flight

    def _unreachable(self, progress: Progress) -> str | None:
        for objective in self._wanted.each:
            match objective:
                case Latency("ttft", quantile, limit_ms) if quantile in PERCENTILES:
                    late = sum(ttft >= limit_ms * 1e6 for _, ttft in self._ttft)
                    if late > most_over(progress.total, PERCENTILES[quantile]):
                        return f"{late} of {progress.total} requests were past {limit_ms:g} ms to their first token"
                case Share("error_rate", percent) if 100 * progress.failed >= percent * progress.total:
                    return f"{progress.failed} of {progress.total} requests had failed"
        return None

    def _piling_up(self, seconds: float) -> str | None:
        if seconds < LEAST_SECONDS or len(self._ttft) < LEAST_FIRST_TOKENS:
            return None
        if rises(self._in_flight, seconds * SETTLING, seconds) and rises(self._ttft, seconds * SETTLING, seconds):
            return "requests in flight and TTFT kept rising"
        return None


def most_over(count: int, percent: float) -> int:
    """So many of `count` values may be over a limit that the percentile, interpolated, is not."""
    return count - 1 - floor((count - 1) * percent / 100)


def rises(series: Sequence[tuple[float, float]], first: float, last: float) -> bool:
    """Whether (seconds, value) pairs rise from `first` to `last` by more than chance: Mann and Kendall's test."""
    blocks: list[list[float]] = [[] for _ in range(BLOCKS)]
    for at, value in series:
        if first <= at <= last:
            blocks[min(BLOCKS - 1, int(BLOCKS * (at - first) / (last - first)))].append(value)
    if not all(blocks):
        return False
    means = [sum(block) / len(block) for block in blocks]
    rise = sum((after > before) - (after < before) for before, after in combinations(means, 2))
    return rise >= LEAST_RISES and means[-1] >= GROWTH * means[0]


def rising(result: Result) -> bool:
    """Whether work still piled up when the last requests of a whole run arrived."""
    samples = result.samples
    first_tokens = [(_seconds(result, sample.origin_ns), sample.ttft_ns) for sample in samples]
    ttft = [(at, float(value)) for at, value in first_tokens if value is not None]
    if len(ttft) < LEAST_FIRST_TOKENS:
        return False
    ends = sorted(_seconds(result, sample.done_ns or sample.sent_ns) for sample in samples)
    in_flight = [(at, float(number + 1 - bisect_right(ends, at))) for number, (at, _) in enumerate(first_tokens)]
    last = first_tokens[-1][0]
    return rises(in_flight, last * SETTLING, last) and rises(ttft, last * SETTLING, last)


def _seconds(result: Result, stamp_ns: int) -> float:
    return (stamp_ns - result.origin_ns) / 1e9
