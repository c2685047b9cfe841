from time import monotonic_ns

from hypothesis import given
from hypothesis import strategies as st

from server.stages import LEDGER_STAGES, TOKEN_STAGES, NullClock, Stage, StageClock

STAMPS = st.integers(-(10**9), 10**12)


def test_stages_stand_in_the_order_a_request_meets_them() -> None:
    names = "receive validate tokenize admit queue prefill decode sample transfer dispatch detokenize postprocess"
    assert [stage.label for stage in Stage] == [*names.split(), "encode", "send"]
    assert list(Stage) == list(range(len(Stage)))
    assert set(LEDGER_STAGES) == set(Stage) - {Stage.SAMPLE}
    assert list(TOKEN_STAGES) == sorted(TOKEN_STAGES)


def test_time_goes_to_the_stage_that_ends_it() -> None:
    clock = StageClock(started=100)
    clock.advance(Stage.RECEIVE, 110)
    clock.advance(Stage.VALIDATE, 130)
    clock.skip(135)
    clock.advance(Stage.SEND, 140)
    assert (clock.ns[Stage.RECEIVE], clock.ns[Stage.VALIDATE], clock.ns[Stage.SEND]) == (10, 20, 5)
    assert clock.unattributed(150) == 5 + 10


def test_a_stamp_that_has_passed_takes_nothing_back() -> None:
    clock = StageClock(started=100)
    clock.advance(Stage.DECODE, 120)
    clock.advance(Stage.TRANSFER, 110)
    clock.skip(90)
    clock.advance(Stage.DISPATCH, 125)
    assert (clock.ns[Stage.DECODE], clock.ns[Stage.TRANSFER], clock.ns[Stage.DISPATCH]) == (20, 0, 5)


@given(STAMPS, st.lists(st.tuples(st.sampled_from([*LEDGER_STAGES, None]), STAMPS)), st.integers(0, 10**9))
def test_whatever_the_stamps_stages_and_unattributed_add_up(
    started: int, laps: list[tuple[Stage | None, int]], tail: int
) -> None:
    clock = StageClock(started)
    for stage, stamp in laps:
        if stage is None:
            clock.skip(stamp)
        else:
            clock.advance(stage, stamp)
    until = clock.cursor + tail
    assert clock.cursor == max([started, *(stamp for _, stamp in laps)])
    assert all(ns >= 0 for ns in clock.ns)
    assert sum(clock.ns) + clock.unattributed(until) == until - started
    assert clock.unattributed(until) >= tail


def test_a_clock_starts_now_and_laps_to_now() -> None:
    before = monotonic_ns()
    clock = StageClock()
    clock.lap(Stage.ADMIT)
    assert before <= clock.started <= clock.cursor <= monotonic_ns()
    assert clock.here() == clock.cursor


def test_a_clock_switched_off_keeps_nothing() -> None:
    clock = NullClock()
    clock.advance(Stage.DECODE, clock.started + 10**9)
    clock.lap(Stage.SEND)
    assert sum(clock.ns) == clock.unattributed(monotonic_ns()) == 0
    assert clock.here() >= clock.started
