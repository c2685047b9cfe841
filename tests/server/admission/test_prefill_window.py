"""How much of prompts is on its way into the engine."""

from server.config import SloSettings
from tests.server.admission.tickets import PLENTY, entered, give_back, opened, request_of, waits


async def test_two_steps_worth_of_prompts_is_on_its_way_into_the_engine_and_no_more() -> None:
    admission = opened(64, batch_tokens=100)
    tickets = [admission.apply(request_of(prompt_tokens=60), PLENTY) for _ in range(10)]
    assert entered(tickets) == 4  # the last begins below 200 tokens
    admission.prefilled(tickets[0].granted.result())
    assert entered(tickets) == 5  # 180 tokens, and a new one
    admission.prefilled(tickets[0].granted.result())
    assert entered(tickets) == 5  # a first token comes once
    give_back(*tickets[:5])
    assert entered(tickets) == 9


async def test_a_prompt_longer_than_the_window_goes_alone() -> None:
    admission = opened(64, batch_tokens=100)
    long, short = (admission.apply(request_of(prompt_tokens=size), PLENTY) for size in (5000, 1))
    assert (waits(long), waits(short)) == (False, True)
    admission.prefilled(long.granted.result())
    assert not waits(short)
    give_back(long, short)


async def test_under_an_objective_the_window_is_what_is_computed_within_it() -> None:
    admission = opened(64, batch_tokens=10_000, max_wait=1, slo=SloSettings(ttft_p99_ms=1500))
    admission.forecast.prefilled(200, 1.0)  # 100 tokens within the half second that is left for the engine
    tickets = [admission.apply(request_of(prompt_tokens=40), PLENTY) for _ in range(4)]
    assert entered(tickets) == 3
    give_back(*tickets)


async def test_a_permit_that_ends_before_its_first_token_makes_room_for_the_next_prompt() -> None:
    admission = opened(64, batch_tokens=50)
    first, second = (admission.apply(request_of(prompt_tokens=100), PLENTY) for _ in range(2))
    assert waits(second)
    give_back(first)
    assert not waits(second)
    admission.prefilled(first.granted.result())  # a late word of it changes nothing
    give_back(second)
    assert (admission._prefills.tokens, len(admission._prefills)) == (0, 0)
