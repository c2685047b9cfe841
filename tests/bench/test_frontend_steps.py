"""Reads against the stamps of an engine's steps, of which events say nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.frontend_steps import kept, lateness_ns
from bench.sample import RequestSample, StreamEvent

MS = 1_000_000
STEPS = [number * 10 * MS for number in range(100)]


def stream(reads: list[int], tokens: int | None = None) -> RequestSample:
    events = [StreamEvent(read, 0, True, None) for read in reads]
    return RequestSample(done_ns=reads[-1], status=200, output_tokens=tokens or len(reads), events=events)


def read_after(steps: list[int], late_ns: int) -> list[int]:
    return [step + late_ns for step in steps]


def test_a_stream_that_keeps_up_has_an_event_per_token_each_as_late_as_it_was() -> None:
    found = kept([stream(read_after(STEPS[5:80], 2 * MS)), stream(read_after(STEPS[10:90], 3 * MS))], STEPS)
    assert found.streams == 2
    assert found.events_per_token == pytest.approx(1, abs=0.02)
    assert found.steps_per_s == pytest.approx(100, rel=0.03)
    assert found.late_ms(0.5) in (2.0, 3.0)
    assert found.late_ms(0.99) == 3.0


def test_events_that_hold_two_tokens_are_half_of_one_per_token_and_their_lateness_is_not_known() -> None:
    found = kept([stream(read_after(STEPS[5:95:2], MS), tokens=90)], STEPS)
    assert found.events_per_token == pytest.approx(0.5, abs=0.02)
    assert found.late_ms(0.5) is None


def test_a_stall_of_several_steps_is_as_long_as_it_was() -> None:
    reads = read_after(STEPS[20:60], MS)
    stalled = [max(read, 400 * MS) if 300 * MS < read < 400 * MS else read for read in reads]
    assert max(lateness_ns(stalled, STEPS)) == 100 * MS  # of the step at 300


@given(st.integers(0, 60), st.lists(st.integers(0, 9 * MS), min_size=1, max_size=40), st.integers(0, 2**32))
def test_no_event_is_early_and_lateness_below_a_step_is_exact(first: int, late: list[int], seed: int) -> None:
    random.Random(seed).shuffle(late)
    reads = [STEPS[first + number] + each for number, each in enumerate(late)]
    assert lateness_ns(reads, STEPS) == late


def test_streams_that_never_ran_together_or_failed_say_nothing() -> None:
    early, late = stream(read_after(STEPS[:10], MS)), stream(read_after(STEPS[50:60], MS))
    with pytest.raises(ValueError, match="at a time"):
        kept([early, late], STEPS)
    early.error = "cut"
    with pytest.raises(ValueError, match="at a time"):
        kept([early], STEPS)
    with pytest.raises(ValueError, match="no steps"):
        lateness_ns([0, 1], [5, 6])
