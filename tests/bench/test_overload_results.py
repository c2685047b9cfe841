import json
from dataclasses import replace

import pytest

from bench.overload_capacity import Capacity, ClosedLoop
from bench.overload_results import Results
from tests.bench.outcomes import S, completed, good_point, point


def test_rounds_are_taken_together() -> None:
    found = Results({}, points=[good_point("ours", 1.0, 10), good_point("ours", 1.0, 20, turn=1)])
    assert found.goodput("ours", 1.0) == pytest.approx(1.5)
    assert found.token_goodput("ours", 1.0) == pytest.approx(16.5)
    assert found.best("ours") == pytest.approx(1.5)


def test_a_second_round_gives_the_width_of_a_control() -> None:
    found = Results({}, points=[good_point("ours", 1.0, 10)])
    assert found.aa_width() is None
    found.points += [good_point("ours", 1.0, 11, turn=1), good_point("stock", 1.0, 5)]
    assert found.aa_width() == pytest.approx(0.1)


def test_a_point_with_a_late_generator_counts_for_nothing() -> None:
    late = replace(completed(), sample=replace(completed().sample, sent_ns=S))
    found = Results({}, points=[point("ours", 1.0, [late])])
    assert found.goodput("ours", 1.0) is None and found.best("ours") is None
    assert found.refused_shares("ours", 1.0) == []


def test_everything_goes_into_the_file() -> None:
    capacity = Capacity("stock", 4.0, 900.0, [ClosedLoop(16, 40, 2000, 10.0)])
    found = Results({"seed": 1}, capacity=capacity, points=[good_point("ours", 1.0, 2)], errors=["x"])
    written = json.loads(json.dumps(found.as_dict()))
    assert (written["seed"], written["errors"], written["capacity"]["sweep"][0]["concurrency"]) == (1, ["x"], 16)
    assert len(written["points"][0]["requests"]) == 2
