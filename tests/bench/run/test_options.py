from pathlib import Path
from typing import Any

import pytest

from bench.run import options
from bench.run.spec import Closed, Lengths, Open, Prompts, SpecError

TRACE = Path("azure.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64", Lengths(mean=64)),
        ("normal:512:100", Lengths("normal", 512, 100.0)),
        ("lognormal:512:0.6:16:2048", Lengths("lognormal", 512, 0.6, 16, 2048)),
    ],
)
def test_lengths_are_a_number_or_a_distribution_with_bounds(text: str, expected: Lengths) -> None:
    assert options.lengths(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "12.5", "uniform:1:2", "normal:5", "normal:5:1:9", "normal:5:1:9:2"])
def test_lengths_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        options.lengths(text)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((8, None, None, {}), Closed(8)),
        ((None, 2.0, None, {}), Open("poisson", 2.0)),
        ((None, 2.0, None, {"evenly": True}), Open("constant", 2.0)),
        ((None, 2.0, None, {"burstiness": 0.5}), Open("gamma", 2.0, burstiness=0.5)),
        ((None, 2.0, None, {"rate_end": 9.0}), Open("ramp", 2.0, rate_end=9.0)),
        ((None, None, TRACE, {}), Open("trace", trace=TRACE)),
        ((None, None, TRACE, {"speed": 3.0}), Open("trace", trace=TRACE, speed=3.0)),
    ],
)
def test_one_option_says_how_requests_come_and_others_refine_it(asked: Any, expected: Closed | Open) -> None:
    concurrency, rate, trace, more = asked
    assert options.load(concurrency, rate, trace, **more) == expected


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ((None, None, None, {}), "exactly one of --concurrency, --rate, --trace"),
        ((8, 2.0, None, {}), "exactly one of --concurrency, --rate, --trace"),
        ((8, None, None, {"burstiness": 0.5}), "--burstiness goes with --rate"),
        ((8, None, None, {"speed": 2.0}), "--speed goes with --trace"),
        ((None, 2.0, None, {"speed": 2.0}), "--speed goes with --trace"),
        ((None, None, TRACE, {"evenly": True}), "--evenly goes with --rate"),
        ((None, None, TRACE, {"rate_end": 2.0}), "--rate-end goes with --rate"),
        ((None, 2.0, None, {"rate_end": 2.0, "burstiness": 2.0}), "at most one of"),
    ],
)
def test_options_that_contradict_each_other_are_named(asked: Any, problem: str) -> None:
    concurrency, rate, trace, more = asked
    with pytest.raises(SpecError, match=problem):
        options.load(concurrency, rate, trace, **more)


def test_prompts_are_synthetic_without_a_file() -> None:
    assert options.prompts(None, None, 0, 1, 1) == Prompts()
    assert options.prompts(None, "32", 8, 2, 3) == Prompts(
        lengths=Lengths(mean=32), prefix_tokens=8, prefixes=2, turns=3
    )


def test_a_file_is_read_by_its_name() -> None:
    assert options.prompts(Path("a.jsonl"), None, 0, 1, 2) == Prompts("jsonl", Path("a.jsonl"), turns=2)
    assert options.prompts(Path("a.json"), None, 0, 1, 1) == Prompts("sharegpt", Path("a.json"))


@pytest.mark.parametrize(("prompt_tokens", "prefix_tokens"), [("32", 0), (None, 8)])
def test_the_texts_of_a_file_cannot_be_shaped(prompt_tokens: str | None, prefix_tokens: int) -> None:
    with pytest.raises(SpecError, match="--prompts names a file"):
        options.prompts(Path("a.json"), prompt_tokens, prefix_tokens, 1, 1)
