import pytest

from bench.compare_report import Visit
from bench.frontend_report import ADDED, FIGURES, figures, table
from bench.procfs import CpuTime
from bench.sample import RequestSample, StreamEvent

MS = 1_000_000


def visit(place: int, arm: str, *, api_us: int = 400, wall_ms: int = 100, timed: bool = False) -> Visit:
    """Eight tokens in four events; the engine costs as much as the front end, the client a tenth."""
    events = [StreamEvent(number * MS, 0, True, None) for number in range(4)]
    sample = RequestSample(output_tokens=8, done_ns=5 * MS, events=events)
    if timed:
        sample.timings = {"stages_ms": {**dict.fromkeys(ADDED, 0.1), "decode": 9.0}, "events": 4, "wall_ms": 4.8}
    cpu, tree = CpuTime(api_us * 1000), CpuTime(2 * api_us * 1000)
    return Visit(0, place, arm, 1.0, wall_ms * MS, [sample], cpu, tree, api_us * 100)


VISITS = [
    visit(0, "ours", timed=True),
    visit(1, "stock", api_us=800),
    visit(2, "stock", api_us=1200, wall_ms=300),
    visit(3, "ours", timed=True),
]


def test_costs_are_per_token_and_per_event_of_each_process() -> None:
    ours = {name: found["value"] for name, found in figures(VISITS)["ours"].items()}
    assert ours["events/s"] == pytest.approx(40.0)
    assert ours["tokens/event"] == 2.0
    assert (ours["API process, CPU µs/token"], ours["API process, CPU µs/event"]) == (50.0, 100.0)
    assert (ours["engine processes, CPU µs/token"], ours["engine processes, CPU µs/event"]) == (50.0, 100.0)
    assert (ours["client, CPU µs/token"], ours["client, CPU µs/event"]) == (5.0, 10.0)
    assert ours["requests failed"] == 0.0


def test_added_latency_is_what_the_stages_behind_the_engines_stamp_took() -> None:
    ours = {name: found["value"] for name, found in figures(VISITS)["ours"].items()}
    assert ADDED == ("transfer", "dispatch", "detokenize", "postprocess", "encode", "send")
    assert ours["engine stamp → socket, µs/event"] == pytest.approx(150.0)
    assert ours["socket → client read, µs, at most"] == pytest.approx(200.0)


def test_an_arm_without_stage_times_leaves_them_blank() -> None:
    stock = figures(VISITS)["stock"]
    assert stock["engine stamp → socket, µs/event"] == {"value": None, "aa_width": None}
    [row] = [line for line in table(VISITS).splitlines() if line.startswith("| engine stamp")]
    assert row == "| engine stamp → socket, µs/event | 150 (0.0%) |  |"


def test_the_times_in_the_bytes_that_a_floor_repeats_are_not_its_own() -> None:
    floor = figures([*VISITS, visit(4, "asgi", timed=True)])["asgi"]
    assert floor["engine stamp → socket, µs/event"]["value"] is None
    assert floor["socket → client read, µs, at most"]["value"] is None


def test_the_table_has_each_arms_aa_width_and_the_ratios() -> None:
    lines = table(VISITS).splitlines()
    assert lines[0] == "| (A/A width) | ours | stock |"
    assert len(lines) == 2 + len(FIGURES) + 2
    assert "| API process, CPU µs/token | 50 (0.0%) | 125 (50.0%) |" in lines
    assert "| ours / this, API process, CPU/token |  | 0.400 [0.400–0.400] |" in lines
