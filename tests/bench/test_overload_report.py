from html.parser import HTMLParser

from bench.overload_capacity import Capacity
from bench.overload_html import html_report
from bench.overload_refusals import BURST, Refusals
from bench.overload_report import text_report
from bench.overload_results import Results
from bench.overload_step import Reading, Step
from tests.bench.outcomes import S, completed, good_point, point, refused

ADMISSION = {
    f"streamgauge_admission_{name}": value for name, value in [("limit", 8.0), ("in_use", 7.0), ("queued", 3.0)]
}


def results() -> Results:
    stepped = point("ours", 2.0, [completed(0), refused(1)])
    return Results(
        {"objectives": {"ttft_s": 1.0, "tpot_s": 0.2}},
        capacity=Capacity("stock", 4.0, 900.0),
        points=[
            *(good_point("ours", factor, 30, 10) for factor in (0.5, 2.0, 3.0)),
            *(good_point("stock", factor, 9) for factor in (0.5, 2.0, 3.0)),
        ],
        step=Step(0, 10.0, [2.0, 8.0, 2.0], stepped, [Reading(S, ADMISSION), Reading(2 * S, ADMISSION)]),
        refusals=[Refusals(BURST, 4, [5_000_000] * 4, {"503 full": 4}, 400_000.0)],
        errors=["step: <no metrics>"],
    )


class Page(HTMLParser):
    """Every address a page would fetch, and the text of its scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self._tag = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]

    def handle_data(self, data: str) -> None:
        if self._tag == "script":
            self.scripts.append(data)


def test_the_text_has_capacity_a_line_per_point_and_the_verdicts() -> None:
    text = text_report(results())
    assert "capacity (stock): 4 requests/s" in text
    lines = [line.split() for line in text.splitlines()]
    assert [line[:2] for line in lines if line and line[0].endswith("x")] == [
        [load, arm] for load in ("0.5x", "2x", "3x") for arm in ("ours", "stock")
    ]
    assert "met     goodput at 2x, over stock's, >= 2: 3.33" in text
    assert "refusals, burst: 4 of 4, CPU 100 us each" in text
    assert "error: step: <no metrics>" in text


def test_an_empty_run_reports_that_nothing_was_measured() -> None:
    assert "not measured" in text_report(Results({}))
    assert "not measured" in html_report(Results({}))


def test_the_page_fetches_nothing() -> None:
    page = Page(html_report(results()))
    assert page.addresses == []
    assert any("Plotly" in script for script in page.scripts)


def test_the_page_plots_every_arm_and_the_step() -> None:
    page = html_report(results())
    for title in (
        "Goodput",
        "Goodput in tokens",
        "TTFT p99 of completed requests",
        "Refused, by quarter",
        "Step of load",
    ):
        assert title in page
    plots = "".join(script for script in Page(page).scripts if "Plotly.newPlot" in script)
    for name in ("ours", "stock", "offered", "ours, 2x", "limit", "in use", "queued", "arrivals", "refused"):
        assert f'"name":"{name}"' in plots


def test_text_in_the_page_is_escaped() -> None:
    assert "&lt;no metrics&gt;" in html_report(results())
