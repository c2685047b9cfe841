from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from bench.batching_case import main
from bench.batching_chapter import implications
from bench.batching_experiments import Case, run_case
from bench.batching_html import html
from bench.batching_report import conclusion, tables, text

SHORT_S = 3.0


@pytest.fixture(scope="module")
def case() -> Case:
    return run_case(seed=1, bound_ms=50.0, duration_s=SHORT_S)


def test_equal_seeds_give_equal_reports_and_others_do_not(case: Case) -> None:
    assert text(run_case(1, 50.0, SHORT_S)) == text(case)
    assert text(run_case(2, 50.0, SHORT_S)) != text(case)


def test_the_report_names_the_setting_the_search_found(case: Case) -> None:
    assert case.best.rate >= max(found.rate for found in case.found) - 5
    assert conclusion(case)[0].startswith(f"Better setting: {case.best.batching.name}, {case.best.rate} requests/s")


def test_every_table_has_as_many_cells_in_each_row(case: Case) -> None:
    for title, rows in tables(case):
        assert len(rows) > 1, title
        assert {len(row) for row in rows} == {len(rows[0])}, title


@pytest.mark.parametrize("render", [text, html])
def test_contradictions_in_the_chapters_figures_are_said(case: Case, render: Callable[[Case], str]) -> None:
    said = unescape(render(case))
    assert "18 requests in line (Little's law)" in said
    assert all(line in said for line in implications())


def test_a_bound_that_nothing_meets_leaves_a_report_all_the_same() -> None:
    found = run_case(seed=1, bound_ms=1.0, duration_s=SHORT_S)
    assert found.best.rate == 0
    assert "0 requests/s with P99 within 1 ms" in text(found)


def test_the_command_prints_the_report_and_writes_it_with_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    assert main(["--output", str(folder), "--duration-s", str(SHORT_S)]) == 0
    written = (folder / "report.txt").read_text()
    assert capsys.readouterr().out == written
    page = (folder / "report.html").read_text()
    assert page.count('class="plotly-graph-div"') == 6
    assert "<script src=" not in page
