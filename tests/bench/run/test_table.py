import io
from collections.abc import Sequence

from rich.console import Console

from bench.run import table
from bench.run.objectives import parse
from bench.run.result import Result
from tests.support.results import completed, failed, refused, result


def text(run: Result, slo: str | None = None, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table.tables(run, parse(slo).judge(run) if slo else []))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def line_of(page: str, label: str) -> Sequence[str]:
    (found,) = [line for line in page.splitlines() if line.strip(" │").startswith(label)]
    return found.replace("│", " ").removeprefix(" ").split(label, 1)[1].split()


RUN = result(
    [completed(0, ttft_ms=100, tokens=30), completed(1, ttft_ms=300, tokens=30), refused(2, "[red]busy[/]"), failed(3)],
    facts={"client_cpu_us_per_event": 7.31},
)


def test_it_has_every_count_and_rate() -> None:
    page = text(RUN)
    assert page.startswith("tiny, chat, 4 at a time\n")
    expected = {"requests ": "4", "completed": "2", "refused ": "1", "failed ": "1", "output tokens/s": "6.00"}
    for label, value in {**expected, "requests/s": "0.200", "tokens/event": "10.00"}.items():
        assert line_of(page, label) == [value]
    assert line_of(page, "client CPU") == ["7.31", "µs/event"]


def test_latencies_have_a_row_each_within_eighty_columns() -> None:
    page = text(RUN)
    assert line_of(page, "TTFT") == ["200.0", "280.0", "290.0", "298.0", "299.8", "200.0", "2"]
    assert line_of(page, "event gap") == ["20.00"] * 6 + ["4"]
    assert {"TPOT", "E2E"} <= set(page.split())
    assert "generator late" not in page
    assert max(map(len, page.splitlines())) <= 80


def test_lateness_is_shown_where_requests_had_a_schedule() -> None:
    assert line_of(text(result([completed(1, late_ms=0.5)])), "generator late")[-1] == "1"


def test_what_was_not_completed_is_counted_by_reason_in_the_words_it_came_with() -> None:
    page = text(RUN)
    assert line_of(page, "refused: http 503") == ["1", "[red]busy[/]"]
    assert line_of(page, "failed: cut") == ["1", "the", "connection", "closed"]


def test_queueing_is_noted() -> None:
    page = text(result([*(completed(ttft_ms=100) for _ in range(20)), completed(ttft_ms=900)]))
    assert "note    TTFT p99 is 7.4 times its p50, a sign of queueing" in page


def test_verdicts_and_faults_come_last() -> None:
    late = result([completed(1, late_ms=80), completed(2, late_ms=80)])
    lines = text(late, "ttft_p99<1s,tpot_p50<10ms").splitlines()[-3:]
    assert lines[0].startswith("met     ttft_p99 < 1,000 ms: 100 ms")
    assert lines[1].startswith("MISSED  tpot_p50 < 10 ms: 20 ms")
    assert lines[2].startswith("INVALID the generator was late: 80.0 ms at p99")


def test_a_run_in_which_everything_failed_is_invalid_and_has_no_latencies() -> None:
    page = text(result([failed(), failed()]))
    assert "INVALID no request was completed" in page
    assert "TTFT" not in page
    assert line_of(page, "failed: cut")[0] == "2"
