from dataclasses import replace
from pathlib import Path

import pytest

from bench.run import figures
from bench.run.spec import Closed, Open
from tests.support.results import SPEC, completed, failed, result, timings


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Closed(8), "8 at a time"),
        (Open("poisson", 2.5), "poisson arrivals at 2.5 requests/s"),
        (Open("constant", 2.5), "constant arrivals at 2.5 requests/s"),
        (Open("gamma", 2.0, burstiness=0.5), "gamma arrivals at 2 requests/s, burstiness 0.5"),
        (Open("ramp", 2.0, rate_end=9.0), "ramp from 2 requests/s to 9 requests/s"),
        (Open("trace", trace=Path("some/azure.csv"), speed=2.0), "trace azure.csv, 2 times as fast"),
    ],
)
def test_a_load_is_told_in_words(load: Closed | Open, words: str) -> None:
    assert figures.load(replace(SPEC, load=load).as_dict()) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.012"), (0.0, "0.000"), (1.234, "1.23"), (12.34, "12.34"), (123.44, "123.4"), (12345.6, "12,346")],
)
def test_a_number_keeps_the_figures_that_matter(value: float, text: str) -> None:
    assert figures.number(value) == text


def test_settings_are_flat_and_without_what_is_not_set() -> None:
    found = dict(figures.settings({"a": 1, "b": {"c": None, "d": {"e": "x"}}, "f": [1, 2]}))
    assert found == {"a": "1", "b.d.e": "x", "f": "1, 2"}


def test_the_key_is_in_no_setting() -> None:
    spec = replace(SPEC, api_key="secret-key")
    assert "secret-key" not in str(figures.settings(result([], spec=spec).spec))


def test_joined_requests_are_counted_among_completed_ones() -> None:
    run = result([completed(timings=timings()), completed(), failed()])
    assert figures.joined(run) == (1, 2)
