"""A step's two sides become parts that add up to its wall time."""

from hypothesis import given
from hypothesis import strategies as st

from sampling.probe.records import GAP, NO_WORKER, PARTS, CoreRecord, WorkerRecord, joined

CORE = CoreRecord(
    step=7,
    stamp=1_000,
    ended=1_010,
    wall=500,
    schedule=20,
    execute=300,
    update=30,
    idle=40,
    intake=10,
    running=8,
    room=64,
    waiting=3,
    prefill_tokens=128,
    decode_tokens=7,
    kv_usage_ppm=250_000,
    overlapped=0,
)
WORKER = WorkerRecord(step=7, prepare=15, forward=200, sample=50, finalize=5, device_gap=0)


def test_what_lies_between_the_processes_is_rpc_and_what_nobody_claims_overhead() -> None:
    step = joined(CORE, WORKER)
    assert (step.prepare, step.forward, step.sample, step.finalize) == (15, 200, 50, 5)
    assert step.rpc == 10 + (300 - 270)
    assert step.overhead == 500 - 40 - 40 - 270 - 20 - 30
    assert step.busy == 250
    assert step.kv_usage == 0.25


def test_without_the_workers_side_its_time_is_rpc() -> None:
    step = joined(CORE, NO_WORKER)
    assert (step.rpc, step.busy) == (310, 0)


def test_steps_that_overlap_have_the_devices_gap_and_no_rpc() -> None:
    step = joined(CORE._replace(overlapped=1, execute=0), WORKER._replace(device_gap=60))
    assert (step.idle, step.rpc, step.overhead) == (40, 0, 20)
    assert step.overlapped


spans = st.integers(0, 10**9)


@given(st.tuples(*[spans] * 4), st.tuples(*[spans] * 4), spans, spans)
def test_parts_add_up_to_the_wall_time(
    worker: tuple[int, int, int, int], core: tuple[int, int, int, int], way: int, rest: int
) -> None:
    schedule, update, idle, intake = core
    execute = sum(worker) + way
    loop = CORE._replace(
        schedule=schedule, update=update, idle=idle, intake=intake, execute=execute, wall=sum(core) + execute + rest
    )
    step = joined(loop, WorkerRecord(7, *worker, device_gap=0))
    assert sum(getattr(step, part) for part in PARTS) == step.wall
    assert sum(getattr(step, part) for part in GAP) == idle + intake + way + rest
