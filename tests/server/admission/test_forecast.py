from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.admission.forecast import MAX_CORRECTION, Forecast, Mean
from server.admission.ticket import Load

WORK = Load(prompt_tokens=1000, sequences=8)


def measured(rate: float = 1000.0, hold_s: float = 2.0) -> Forecast:
    """One that knows how fast the machine is."""
    forecast = Forecast()
    forecast.prefilled(int(rate), 1.0)
    forecast.held(hold_s)
    return forecast


def test_nothing_is_foreseen_before_anything_was_measured() -> None:
    forecast = Forecast()
    assert forecast.wait(WORK, 4) == 0
    assert (forecast.prefill_rate, forecast.hold_s) == (0, 0)


def test_the_wait_is_for_the_prompts_or_for_the_slots_whichever_takes_longer() -> None:
    forecast = measured(rate=1000, hold_s=2)
    assert forecast.wait(Load(3000, 0), 4) == pytest.approx(3)
    assert forecast.wait(Load(0, 8), 4) == pytest.approx(4)
    assert forecast.wait(Load(3000, 8), 4) == pytest.approx(4)


def test_free_slots_and_room_for_prompts_make_no_negative_wait() -> None:
    assert measured().wait(Load(-500, -3), 4) == 0


def test_the_prefill_rate_settles_at_the_machines() -> None:
    forecast = Forecast()
    forecast.prefilled(10, 5.0)  # a cold start
    for _ in range(100):
        forecast.prefilled(400, 0.5)
    assert forecast.prefill_rate == pytest.approx(800, rel=0.05)


def test_the_prefill_rate_follows_a_machine_that_becomes_slower() -> None:
    forecast = measured(rate=1000)
    for _ in range(100):
        forecast.prefilled(100, 1.0)
    assert forecast.prefill_rate == pytest.approx(100, rel=0.05)


def test_prompts_that_end_in_one_step_share_its_time() -> None:
    forecast = Forecast()
    forecast.prefilled(300, 1.0)
    for _ in range(3):
        forecast.prefilled(300, 0.0)
    assert forecast.prefill_rate == pytest.approx(1200)


def test_the_time_a_slot_is_held_converges_and_follows() -> None:
    forecast = Forecast()
    for seconds in (2.0, 0.5):
        for _ in range(60):
            forecast.held(seconds)
        assert forecast.hold_s == pytest.approx(seconds, rel=0.05)


def test_a_prompt_is_guessed_from_its_bodys_bytes_by_what_earlier_ones_were() -> None:
    forecast = Forecast()
    assert forecast.prompt_tokens(400) == 100
    for _ in range(60):
        forecast.tokenized(body_bytes=1000, prompt_tokens=100)
    assert forecast.prompt_tokens(400) == 40
    assert forecast.prompt_tokens(0) == 1
    forecast.tokenized(body_bytes=10, prompt_tokens=0)  # nothing to divide by


def test_an_answer_is_guessed_from_those_with_about_its_limit_and_never_beyond_its_own() -> None:
    forecast = Forecast()
    assert forecast.answer_tokens(500) == 500
    for _ in range(60):
        forecast.answered(500, 40)
        forecast.answered(64, 64)
    assert forecast.answer_tokens(500) == pytest.approx(40)
    assert forecast.answer_tokens(300) == pytest.approx(40)  # the same power of two
    assert forecast.answer_tokens(100) == pytest.approx(64)
    assert forecast.answer_tokens(64) == 64
    assert forecast.answer_tokens(5000) == 5000  # nothing is known of such


@pytest.mark.parametrize("truth", [0.5, 1.0, 3.0])
def test_forecasts_are_corrected_until_they_come_true(truth: float) -> None:
    forecast = measured()
    real = truth * forecast.wait(WORK, 4)
    for _ in range(200):
        forecast.waited(forecast.wait(WORK, 4), real)
    assert forecast.wait(WORK, 4) == pytest.approx(real, rel=0.1)


def test_a_correction_moves_towards_the_truth_step_by_step() -> None:
    forecast = measured()
    forecast.waited(4.0, 4.0)  # as foreseen
    waits = []
    for _ in range(10):
        forecast.waited(forecast.wait(WORK, 4), 8.0)
        waits.append(forecast.wait(WORK, 4))
    assert all(earlier < later <= 8.0 for earlier, later in pairwise(waits))


def test_waits_too_short_to_be_told_from_noise_correct_nothing() -> None:
    forecast = measured()
    before = forecast.wait(WORK, 4)
    for _ in range(50):
        forecast.waited(0.0, 9.0)
        forecast.waited(0.04, 9.0)
    assert forecast.wait(WORK, 4) == before


SECONDS = st.floats(0, 1e6)


@given(st.lists(st.tuples(SECONDS, SECONDS), max_size=50))
def test_no_history_corrects_by_more_than_the_bound(history: list[tuple[float, float]]) -> None:
    forecast = measured()
    before = forecast.wait(WORK, 4)
    for foreseen, real in history:
        forecast.waited(foreseen, real)
        assert before / MAX_CORRECTION * 0.999 <= forecast.wait(WORK, 4) <= before * MAX_CORRECTION * 1.001


def test_a_mean_is_its_first_sample_and_then_moves_by_shares() -> None:
    mean = Mean(7.0)
    assert mean.value == 7
    mean.add(10)
    assert mean.value == 10
    mean.add(20)
    assert mean.value == pytest.approx(11)


def test_the_margin_rests_where_one_wait_in_two_hundred_is_in_vain() -> None:
    forecast, chance = Forecast(), Random(1)
    in_vain = 0
    for number in range(60_000):
        # A wait foreseen as long as is borne over the margin, and real ones that scatter by half of it.
        real = chance.lognormvariate(0, 0.5) / forecast.margin
        forecast.waited(1 / forecast.margin, real, in_vain=real > 1)
        in_vain += real > 1 and number >= 10_000
    assert 0.002 < in_vain / 50_000 < 0.01


def test_the_margin_stays_within_bounds_and_needs_waits_to_move() -> None:
    forecast = Forecast()
    for _ in range(100):
        forecast.waited(0.0, 0.0)
        assert forecast.margin == 1
    for _ in range(100):
        forecast.waited(1.0, 1.0, in_vain=True)
    assert forecast.margin == 10
    for _ in range(10_000):
        forecast.waited(1.0, 1.0)
    assert forecast.margin == 1
