from time import monotonic_ns

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.ledger import EventTrack, Ledger, NullMeter, StepMeter, step_meter
from server.request import TokenDelta
from server.stages import LEDGER_STAGES, TOKEN_STAGES, NullClock, Stage, StageClock
from tests.support.meters import Kept, KeptMeters

MS = 10**6


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, in a list of one: set it."""
    stamp = [0]
    for module in ("server.ledger", "server.stages"):
        monkeypatch.setattr(f"{module}.monotonic_ns", lambda: stamp[0])
    return stamp


def delta(scheduled: int = 0, sampled: int = 0, received: int = 0) -> TokenDelta:
    return TokenDelta((1,), scheduled_ns=scheduled, sampled_ns=sampled, received_ns=received)


def work(meter: StepMeter, now: list[int], each: int) -> None:
    """Our stages on one delta, `each` ns long."""
    for stage in (Stage.DETOKENIZE, Stage.POSTPROCESS, Stage.ENCODE, Stage.SEND):
        now[0] += each
        meter.lap(stage)


def spent(clock: StageClock) -> dict[str, int]:
    return {stage.label: clock.ns[stage] for stage in Stage if clock.ns[stage]}


def test_the_first_delta_ends_queue_and_prefill(now: list[int]) -> None:
    clock, kept = StageClock(started=0), KeptMeters()
    meter = StepMeter(clock, kept.meters)
    now[0] = 100
    meter.arrive(delta(scheduled=10, sampled=60, received=90))
    work(meter, now, 5)
    assert spent(clock) == {
        "queue": 10,
        "prefill": 50,
        "transfer": 30,
        "dispatch": 10,
        "detokenize": 5,
        "postprocess": 5,
        "encode": 5,
        "send": 5,
    }
    assert kept.stages[Stage.DECODE].ns == []
    assert kept.stages[Stage.TRANSFER].ns == [30]


def test_decode_counts_only_from_the_end_of_our_work_on_the_token_before(now: list[int]) -> None:
    clock, kept = StageClock(started=0), KeptMeters()
    meter = StepMeter(clock, kept.meters)
    now[0] = 100
    meter.arrive(delta(scheduled=10, sampled=60, received=90))
    work(meter, now, 5)  # until 120
    now[0] = 160
    meter.arrive(delta(sampled=140, received=150))
    assert kept.stages[Stage.DECODE].ns == [20]
    assert (clock.ns[Stage.TRANSFER], clock.ns[Stage.DISPATCH]) == (30 + 10, 10 + 10)


def test_an_engine_that_was_done_first_cost_no_decode(now: list[int]) -> None:
    clock, kept = StageClock(started=0), KeptMeters()
    meter = StepMeter(clock, kept.meters)
    now[0] = 100
    meter.arrive(delta(scheduled=10, sampled=60, received=90))
    work(meter, now, 50)  # until 300
    now[0] = 310
    meter.arrive(delta(sampled=200, received=250))
    assert kept.stages[Stage.DECODE].ns == [0]
    assert kept.stages[Stage.TRANSFER].ns == [30, 0]
    assert kept.stages[Stage.DISPATCH].ns == [10, 10]
    assert clock.ns[Stage.DECODE] == 0


def test_a_neighbouring_choice_of_the_same_step_only_waited_its_turn(now: list[int]) -> None:
    clock, kept = StageClock(started=0), KeptMeters()
    meter = StepMeter(clock, kept.meters)
    now[0] = 100
    meter.arrive(delta(scheduled=10, sampled=60, received=90))
    work(meter, now, 5)
    meter.arrive(delta(scheduled=10, sampled=60, received=90))
    work(meter, now, 5)
    assert (clock.ns[Stage.DECODE], clock.ns[Stage.TRANSFER]) == (0, 30)
    assert sum(clock.ns) == now[0]


def test_while_parked_all_time_of_the_request_is_send_and_the_histograms_go_on(now: list[int]) -> None:
    clock, kept = StageClock(started=0), KeptMeters()
    meter = StepMeter(clock, kept.meters)
    now[0] = 100
    meter.arrive(delta(scheduled=10, sampled=60, received=90))
    work(meter, now, 5)
    before = spent(clock)
    meter.parked = True
    now[0] = 200
    meter.arrive(delta(sampled=150, received=180))
    work(meter, now, 5)
    now[0] = 400
    meter.unpark()
    assert spent(clock) == before | {"send": 5 + 280}
    assert kept.stages[Stage.DECODE].ns == [30]
    assert kept.stages[Stage.DETOKENIZE].ns == [5, 5]
    now[0] = 500
    meter.arrive(delta(sampled=460, received=480))
    assert clock.ns[Stage.DECODE] == 60


STAMP = st.integers(0, 10**6)
STEPS = st.lists(st.tuples(STAMP, STAMP, STAMP, STAMP, st.booleans()), max_size=15)


@given(st.integers(0, 10**6), STEPS)
def test_whatever_the_engine_stamps_the_stages_add_up(
    started: int, steps: list[tuple[int, int, int, int, bool]]
) -> None:
    stamp = [started]
    with pytest.MonkeyPatch.context() as patch:
        for module in ("server.ledger", "server.stages"):
            patch.setattr(f"{module}.monotonic_ns", lambda: stamp[0])
        clock, kept = StageClock(started), KeptMeters()
        meter = StepMeter(clock, kept.meters)
        for scheduled, sampled, received, passed, parks in steps:
            stamp[0] += passed
            meter.arrive(delta(scheduled, min(sampled, stamp[0]), min(received, stamp[0])))
            work(meter, stamp, passed % 7)
            if parks and not meter.parked:
                meter.parked = True
            elif parks:
                meter.unpark()
        end = max(stamp[0], clock.cursor)
        assert all(ns >= 0 for ns in clock.ns)
        assert sum(clock.ns) + clock.unattributed(end) == end - started
        report = Ledger(id="x", clock=clock).report(end)
        parts = sum(report["stages_ms"].values()) + report["unattributed_ms"]
        assert parts == pytest.approx(report["wall_ms"], abs=0.001 * len(LEDGER_STAGES))
        assert all(len(kept.stages[stage].ns) in (len(steps), max(len(steps) - 1, 0)) for stage in TOKEN_STAGES)


def test_a_meter_switched_off_says_only_when_an_event_left() -> None:
    kept = KeptMeters()
    meter = step_meter(NullClock(), kept.meters)
    assert isinstance(meter, NullMeter)
    meter.arrive(delta())
    assert meter.lap(Stage.ENCODE) == 0
    assert 0 < meter.lap(Stage.SEND) <= monotonic_ns()
    meter.parked = True
    meter.unpark()
    assert not meter.parked
    assert not any(stage.ns for stage in kept.stages)


def test_gaps_lie_between_events_and_the_longest_is_told_with_its_stage() -> None:
    ledger, gap = Ledger(id="x", clock=StageClock(started=0), streamed=True), Kept()
    track = EventTrack(ledger)
    for stage, stamp in ((Stage.PREFILL, 10 * MS), (Stage.SEND, 40 * MS), (Stage.DECODE, 50 * MS)):
        ledger.clock.advance(stage, stamp)
        track.event(stamp, gap)
    track.close(output_tokens=5)
    assert gap.ns == [30 * MS, 10 * MS]
    report = ledger.report(60 * MS)
    assert (report["ttft_ms"], report["max_gap_ms"], report["max_gap_stage"]) == (10, 30, "send")
    assert (report["tpot_ms"], report["events"], report["wall_ms"], report["unattributed_ms"]) == (10, 3, 60, 10)


def test_time_per_token_is_of_each_choice_and_of_one_with_several_tokens() -> None:
    ledger, gap = Ledger(id="x", clock=StageClock(started=0)), Kept()
    one, two = EventTrack(ledger), EventTrack(ledger)
    one.event(10, gap)
    two.event(20, gap)
    two.event(60, gap)
    one.close(output_tokens=1)
    two.close(output_tokens=3)
    assert ledger.tpot_ns == [20]
    assert gap.ns == [40]


def test_gaps_are_null_where_nothing_was_streamed() -> None:
    ledger = Ledger(id="x", clock=StageClock(started=0), streamed=False)
    track = EventTrack(ledger)
    for stamp in (MS, 3 * MS):
        track.event(stamp, Kept())
    report = ledger.report(5 * MS)
    assert (report["ttft_ms"], report["max_gap_ms"], report["max_gap_stage"]) == (1, None, None)


def test_a_request_without_any_event_has_no_latencies() -> None:
    report = Ledger(id="x", clock=StageClock(started=0)).report(0)
    assert [report[key] for key in ("ttft_ms", "tpot_ms", "max_gap_ms", "output_tokens_per_s")] == [None] * 4


def test_server_timing_names_the_stages_that_took_time() -> None:
    ledger = Ledger(id="x", clock=StageClock(started=0))
    ledger.clock.advance(Stage.RECEIVE, 1_500_000)
    ledger.clock.advance(Stage.PREFILL, 4_000_000)
    assert ledger.server_timing(5_000_000) == "receive;dur=1.5, prefill;dur=2.5, total;dur=5.0"


def sampled_in(step_ns: int, sampling: int) -> TokenDelta:
    found = delta(scheduled=10, sampled=step_ns, received=step_ns)
    found.sample_ns = sampling
    return found


def test_sampling_is_told_apart_for_the_first_token_and_never_added_to_the_sum(now: list[int]) -> None:
    clock, kept = StageClock(started=0), KeptMeters()
    meter = StepMeter(clock, kept.meters)
    for number in (1, 2, 3):
        now[0] = 100 * number
        meter.arrive(sampled_in(100 * number, 7 * number))
    assert (clock.sampled_first, clock.sampled) == (7, 7 + 14 + 21)
    assert clock.unattributed(300) == 0
    assert Ledger("x", clock).report(300)["substages_ms"] == {
        "prefill": {"sample": 0.0},
        "decode": {"sample": 0.0},  # 35 ns
    }


def test_choices_that_share_a_step_share_its_sampling(now: list[int]) -> None:
    clock, kept = StageClock(started=0), KeptMeters()
    meter = StepMeter(clock, kept.meters)
    now[0] = 200
    for step_ns in (100, 100, 150, 150):
        meter.arrive(sampled_in(step_ns, 5))
    assert clock.sampled == 10
