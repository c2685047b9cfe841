import asyncio
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest

from bench.search import report
from bench.search.capacity import Capacity, Search, find, wanted
from tests.bench.search.simulated import Queue, Server
from tests.support.results import SPEC


def found(slo: str, high: float | None = None) -> Capacity:
    search = Search(SPEC, wanted(slo), high=high, seconds=30.0, requests=60, rest_s=0.0)
    return asyncio.run(find(search, Server(Queue(8, 0.5)).load, lambda _: None))


@pytest.fixture(scope="module")
def capacity() -> Capacity:
    return found("ttft_p90<1s, tpot_p99<20s")


class Page(HTMLParser):
    """Every address a page would fetch, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.text = ""
        self._tag = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag not in ("script", "style"):
            self.text += data


def test_the_answer_has_the_rate_and_its_interval(capacity: Capacity) -> None:
    assert capacity.estimate is not None
    text = report.answer(capacity)
    assert text.startswith(f"{capacity.estimate.rate:.2f} requests/s (95 % interval {capacity.estimate.low:.2f} to ")
    assert "meet ttft_p90<1s, tpot_p99<20s,error_rate<1% as often as not." in text
    missed = min(trial.rate for trial in capacity.trials if not trial.met)
    safe = max(trial.rate for trial in capacity.trials if trial.rate < missed)
    assert text.endswith(f"Every run up to {safe:.2f} did.")


def test_beyond_the_tried_rates_the_answer_is_a_bound() -> None:
    never, always = found("ttft_p90<10ms"), found("ttft_p90<9s", high=5.0)
    assert report.answer(never) == "Less than 0.25 requests/s: no run, down to there, met ttft_p90<10ms,error_rate<1%."
    assert report.answer(always) == "More than 5 requests/s: every run up to there met ttft_p90<9s,error_rate<1%."
    assert "Less than" in report.html(never)


def test_the_file_has_every_point_and_says_which_stage_breaks(capacity: Capacity, tmp_path: Path) -> None:
    kept = orjson.loads(report.save_json(tmp_path, capacity).read_bytes())
    assert [point["rate"] for point in kept["points"]] == [trial.rate for trial in capacity.trials]
    assert kept["points"][0]["folder"] == "points/00-at-4"
    assert kept["estimate"]["low"] < kept["estimate"]["rate"] < kept["estimate"]["high"]
    assert kept["bracket"] == {"low": capacity.bracket.low, "high": capacity.bracket.high}
    assert kept["findings"][0]["stage"] == "queue"
    assert {"levels", "around_the_edge", "knee", "plan", "scale", "spec", "method"} <= set(kept)
    assert "api_key" not in kept["spec"]


def test_the_page_fetches_nothing_and_names_the_bottleneck(capacity: Capacity, tmp_path: Path) -> None:
    page = Page(report.save_html(tmp_path, capacity).read_text())
    assert page.addresses == []
    assert report.answer(capacity) in page.text
    assert "queue breaks first" in page.text


def test_the_page_plots_the_curve_with_its_knee_and_all_that_goes_with_it(capacity: Capacity) -> None:
    html = report.html(capacity)
    for title in (
        "latency and throughput; shaded, the interval of capacity",
        "goodput",
        "runs around the edge",
        "TTFT of completed requests",
        "TPOT of completed requests",
        "where requests\\u0027 time goes",
    ):
        assert title in html or title.replace("\\u0027", "'") in html, title
    for name in ("knee, ", "met every objective", "cut short", "p90 objective", "decode", "queue"):
        assert name in html


def test_markup_in_what_a_server_says_is_only_text(capacity: Capacity) -> None:
    said = replace(capacity, scale=replace(capacity.scale, facts={"server": "<script>"}))
    assert "&lt;script&gt;" in report.html(said)
