"""Steps as series."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sampling.probe.records import PARTS, Step
from server.telemetry.engine_steps import WINDOW_S, EngineSteps

NS = 10**9
MS = 10**6


def step(ended: int = 0, forward: int = 80 * MS, sample: int = 10 * MS, **other: int) -> Step:
    fields = dict.fromkeys(Step.__dataclass_fields__, 0) | {"room": 64, "ended": ended}
    return Step(**{**fields, "forward": forward, "sample": sample, **other})  # type: ignore[arg-type]


def samples(steps: EngineSteps) -> dict[tuple[str, tuple[str, ...]], float]:
    registry = CollectorRegistry()
    registry.register(steps)
    return {
        (sample.name.removeprefix("streamgauge_"), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_an_engine_that_has_done_nothing_has_all_series() -> None:
    found = samples(EngineSteps())
    assert {labels[0] for name, labels in found if name == "engine_step_seconds_sum"} == set(PARTS)
    assert found["engine_busy_ratio", ()] == 0
    assert found["batch_occupancy_count", ()] == 0


def test_each_part_is_counted_under_its_name() -> None:
    steps = EngineSteps()
    for number, part in enumerate(PARTS):
        steps.add(step(forward=0, sample=0, **{} if part in ("forward", "sample") else {part: (number + 1) * MS}))
    steps.add(step(forward=500 * MS, sample=70 * MS))
    found = samples(steps)
    for number, part in enumerate(PARTS):
        expected = {"forward": 0.5, "sample": 0.07}.get(part, (number + 1) / 1000)
        assert found["engine_step_seconds_sum", (part,)] == expected
        assert found["engine_step_seconds_count", (part,)] == len(PARTS) + 1


def test_batches_are_counted_by_size_phase_and_occupancy() -> None:
    steps = EngineSteps()
    steps.add(step(prefill_tokens=100, decode_tokens=7, running=16, waiting=3, kv_usage=1))
    steps.add(step(decode_tokens=32, running=32))
    found = samples(steps)
    assert (found["batch_tokens_sum", ("prefill",)], found["batch_tokens_count", ("prefill",)]) == (100, 1)
    assert (found["batch_tokens_sum", ("decode",)], found["batch_tokens_count", ("decode",)]) == (39, 2)
    assert found["batch_occupancy_sum", ()] == (16 + 32) / 64
    assert found["batch_occupancy_bucket", ("0.3",)] == 1
    assert found["engine_waiting", ()] == 0  # at the latest step


def test_utilization_is_the_models_share_of_the_last_seconds() -> None:
    steps = EngineSteps()
    for tick in range(300):  # 30 s of steps of 100 ms
        steps.add(step(ended=100 * NS + tick * 100 * MS))
    now = 130 * NS
    assert abs(steps.busy_ratio(now) - 0.9) < 0.02
    assert abs(steps.busy_ratio(now + WINDOW_S // 2 * NS) - 0.45) < 0.05
    assert steps.busy_ratio(now + 2 * WINDOW_S * NS) == 0


def test_utilization_is_never_more_than_all() -> None:
    steps = EngineSteps()
    steps.add(step(ended=50 * NS + 1, forward=60 * NS))  # one long prefill, counted where it ended
    assert steps.busy_ratio(51 * NS) == 1


def test_steps_that_nobody_read_in_time_are_counted() -> None:
    steps = EngineSteps()
    for number in (7, 8, 12, 13):
        steps.add(step(number=number))
    assert samples(steps)["engine_steps_missed_total", ()] == 3
