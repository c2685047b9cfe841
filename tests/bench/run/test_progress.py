import io

from rich.console import Console

from bench.run.meter import Progress
from bench.run.progress import shown
from tests.support.results import MS


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120)


def written(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def state(
    seconds: float, done: int, *, total: int = 10, ttft_ms: tuple[int, ...] = (), gaps_ms: tuple[int, ...] = ()
) -> Progress:
    ttfts, gaps = [ms * MS for ms in ttft_ms], [ms * MS for ms in gaps_ms]
    return Progress(done, 1, 2, total, tokens=100 * done, seconds=seconds, ttft_ns=ttfts, gaps_ns=gaps)


def test_without_a_terminal_there_is_a_line_per_five_seconds_and_one_at_the_end() -> None:
    to = console(terminal=False)
    with shown(to) as on_progress:
        for tenth in range(120):
            on_progress(state(tenth / 10, 4))
        on_progress(state(12.1, 10))
        on_progress(state(12.2, 10))
    assert [line.split(" done")[0] for line in written(to).splitlines()] == ["4 of 10", "4 of 10", "10 of 10"]


def test_a_line_has_counts_rate_and_latencies() -> None:
    to = console(terminal=False)
    with shown(to) as on_progress:
        on_progress(state(5.0, 4, ttft_ms=(100, 300), gaps_ms=(20, 20, 20)))
    assert written(to) == (
        "4 of 10 done, 1 failed, 2 in flight, 80.00 tokens/s, 5 s, "
        "TTFT p50 200.0 p99 298.0 ms, event gap p50 20.00 p99 20.00 ms\n"
    )


def test_latencies_are_kept_beyond_the_state_that_brought_them() -> None:
    to = console(terminal=False)
    with shown(to) as on_progress:
        on_progress(state(1.0, 1, ttft_ms=(100,)))
        on_progress(state(5.0, 4))
    assert "TTFT p50 100.0 p99 100.0 ms" in written(to)
    assert "event gap" not in written(to)


def test_a_run_that_has_not_begun_says_nothing() -> None:
    to = console(terminal=False)
    with shown(to) as on_progress:
        on_progress(state(0.0, 0, total=0))
    assert written(to) == ""


def test_on_a_terminal_the_latest_state_is_drawn_over_the_one_before() -> None:
    to = console(terminal=True)
    with shown(to) as on_progress:
        on_progress(state(0.0, 0, total=0))
        on_progress(state(1.0, 4, ttft_ms=(100,)))
        on_progress(state(2.0, 9))
    text = written(to)
    assert "4 of 10 done" in text
    assert "9 of 10 done" in text
    assert "\x1b[1A" in text
