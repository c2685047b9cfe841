"""How a run is coming along: a bar on a terminal, else a line now and then."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from bench.metrics import percentile
from bench.run.figures import number
from bench.run.meter import Progress

LINE_EVERY_S = 5.0
BAR_COLUMNS = 60
RECENT = 1000


@contextmanager
def shown(console: Console) -> Iterator[Callable[[Progress], None]]:
    """What it yields shows the state it is given; the bar is gone at the end."""
    words = Words()
    if not console.is_terminal:
        yield Lines(console, words)
        return
    # Drawn when there is news: a thread that draws would take the interpreter from the client that stamps events.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda progress: live.update(_bar(progress, words(progress)), refresh=True)


def _bar(progress: Progress, lines: Iterable[str]) -> Group:
    bar = ProgressBar(total=progress.total or None, completed=progress.done, width=BAR_COLUMNS)
    return Group(bar, Text("\n".join(lines)))


class Words:
    """Counts and rate, then quantiles of the latest TTFTs and event gaps: a Progress brings only the new ones."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[int]] = {name: deque(maxlen=RECENT) for name in ("TTFT", "event gap")}

    def __call__(self, progress: Progress) -> list[str]:
        self._recent["TTFT"].extend(progress.ttft_ns)
        self._recent["event gap"].extend(progress.gaps_ns)
        rate = progress.tokens / progress.seconds if progress.seconds else 0.0
        counts = f"{progress.done} of {progress.total} done, {progress.failed} failed, {progress.in_flight} in flight"
        latencies = [f"{name} {_quantiles(values)}" for name, values in self._recent.items() if values]
        return [f"{counts}, {number(rate)} tokens/s, {progress.seconds:.0f} s", *latencies]


class Lines:
    """Prints a line per LINE_EVERY_S of the run, and one at its end."""

    def __init__(self, console: Console, words: Words) -> None:
        self._console = console
        self._words = words
        self._due_s = LINE_EVERY_S
        self._ended = False

    def __call__(self, progress: Progress) -> None:
        words = self._words(progress)
        ends = not self._ended and 0 < progress.total <= progress.done
        if not ends and progress.seconds < self._due_s:
            return
        self._ended |= ends
        self._due_s = progress.seconds + LINE_EVERY_S
        self._console.print(Text(", ".join(words)), soft_wrap=True)


def _quantiles(values_ns: Iterable[int]) -> str:
    ordered = sorted(values_ns)
    return f"p50 {number(percentile(ordered, 50) / 1e6)} p99 {number(percentile(ordered, 99) / 1e6)} ms"
