import pytest

from bench.compare_report import FIGURES, Pool, Visit, aa_width, ratios, table
from bench.procfs import CpuTime
from bench.sample import RequestSample, StreamEvent

MS = 1_000_000


def visit(turn: int, place: int, arm: str, *, wall_ms: int, ttft_ms: tuple[int, ...] = (10,), cpu_us: int = 0) -> Visit:
    """Ten tokens per request."""
    samples = [
        RequestSample(output_tokens=10, done_ns=90 * MS, events=[StreamEvent(ttft * MS, 0, True, None)])
        for ttft in ttft_ms
    ]
    return Visit(turn, place, arm, 1.0, wall_ms * MS, samples, CpuTime(cpu_us * 1000, 0), CpuTime(), 0)


ROUND = [
    visit(0, 0, "ours", wall_ms=100),
    visit(0, 1, "stock", wall_ms=300),
    visit(0, 2, "stock", wall_ms=100),
    visit(0, 3, "ours", wall_ms=100),
]


def test_a_ratio_is_of_sums_not_of_rates() -> None:
    found = ratios(ROUND)["stock"]["output_tokens_per_s"]
    # 20 tokens in 200 ms against 20 in 400 ms; the mean of stock's two rates would have said 1.5.
    assert found.per_round == [pytest.approx(2.0)]


def test_the_aa_width_is_the_largest_difference_between_two_visits_of_an_arm() -> None:
    found = ratios(ROUND)["stock"]["output_tokens_per_s"]
    assert found.aa_width == pytest.approx(2.0)
    assert aa_width(ROUND, ["ours"], FIGURES["output_tokens_per_s"]) == 0.0


def test_an_arm_visited_once_has_no_aa_width() -> None:
    assert aa_width(ROUND[:2], ["ours", "stock"], FIGURES["output_tokens_per_s"]) is None


def test_there_is_one_ratio_per_round() -> None:
    second = [visit(1, 0, "ours", wall_ms=50), visit(1, 1, "stock", wall_ms=50)]
    found = ratios([*ROUND, *second])["stock"]["output_tokens_per_s"].as_dict()
    assert (found["min"], found["median"], found["max"]) == pytest.approx((1.0, 1.5, 2.0))


def test_percentiles_of_a_pool_are_of_all_its_samples() -> None:
    pool = Pool([visit(0, 0, "a", wall_ms=1, ttft_ms=(10, 20)), visit(0, 1, "a", wall_ms=1, ttft_ms=(90,))])
    assert pool.figures()["ttft_p50_ms"] == 20.0


def test_cpu_is_counted_per_token() -> None:
    pool = Pool([visit(0, 0, "a", wall_ms=1, cpu_us=300), visit(0, 1, "a", wall_ms=1, cpu_us=100)])
    assert pool.figures()["api_cpu_us_per_token"] == 20.0


def test_an_arm_that_failed_everywhere_leaves_no_ratio() -> None:
    assert ratios(ROUND[:1]) == {}
    failed = Visit(0, 1, "stock", 1.0, MS, [RequestSample(error="connect")], CpuTime(), CpuTime(), 0)
    assert "ttft_p50_ms" not in ratios([ROUND[0], failed])["stock"]


def test_the_table_has_a_column_per_arm_and_per_ratio() -> None:
    header, *rows = table(ROUND).splitlines()
    assert header.split() == ["figure", "ours", "stock", "ours/stock"]
    assert len(rows) == len(FIGURES)
    throughput = next(row for row in rows if row.startswith("output_tokens_per_s"))
    assert throughput.split(maxsplit=3)[1:] == ["100", "50", "2.000 [2.000 - 2.000] A/A 200.0%"]


def test_the_table_of_nothing_but_stock_has_no_ratios() -> None:
    assert table(ROUND[1:3]).splitlines()[0].split() == ["figure", "stock"]


def test_a_visit_keeps_its_raw_figures() -> None:
    kept = visit(0, 0, "ours", wall_ms=5, ttft_ms=(10, 20)).as_dict()
    raw = kept["raw"]
    assert isinstance(raw, dict)
    assert [row["ttft_ns"] for row in raw["requests"]] == [10 * MS, 20 * MS]
