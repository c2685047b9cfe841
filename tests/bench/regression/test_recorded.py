from dataclasses import replace
from pathlib import Path

import pytest

from bench.regression import recorded
from bench.run.spec import Closed, Lengths, Open, Prompts, Spec, SpecError
from tests.support.results import SPEC, completed, result

CLOSED = Spec("http://old", "tiny", Closed(8), requests=5, output=Lengths("normal", 64, 8.0), warmup=3, seed=9)
SHAPED = replace(CLOSED, load=Open("gamma", 3.0, burstiness=0.5), prompts=Prompts(prefix_tokens=32, prefixes=2))
FILES = replace(
    CLOSED, load=Open("trace", trace=Path("/trace.jsonl"), speed=2.0), prompts=Prompts("jsonl", Path("/prompts.jsonl"))
)


@pytest.mark.parametrize("spec", [CLOSED, SHAPED, FILES])
def test_a_recorded_load_comes_back_as_it_was_on_another_server(spec: Spec, tmp_path: Path) -> None:
    path = result([completed()], spec=spec).save(tmp_path)
    expected = replace(spec, url="http://new", api_key="secret")
    assert recorded.spec(recorded.load(path), "http://new", "secret") == expected


def test_a_folder_stands_for_the_result_in_it(tmp_path: Path) -> None:
    result([completed()]).save(tmp_path)
    assert recorded.load(tmp_path).summary.completed == 1


@pytest.mark.parametrize("content", ["{}", "no json", '{"format": 1}', "[]"])
def test_what_is_no_result_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(content)
    with pytest.raises(SpecError, match=r"can't be read as a result"):
        recorded.load(file)


def test_a_result_that_does_not_say_how_it_was_made_is_refused() -> None:
    found = result([completed()])
    unknown = replace(found, spec={**found.spec, "weather": "fine"})
    with pytest.raises(SpecError, match="weather"):
        recorded.spec(unknown, SPEC.url)
    with pytest.raises(SpecError, match="load"):
        recorded.spec(replace(found, spec={}), SPEC.url)
