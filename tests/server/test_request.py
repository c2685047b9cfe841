from itertools import product

import pytest

from sampling.params import SamplingParams
from server.request import GenerationRequest, RequestState

ENDS = {RequestState.FINISHED, RequestState.FAILED, RequestState.CANCELLED}


@pytest.mark.parametrize(("state", "to"), [*product(RequestState, RequestState)])
def test_a_request_waits_runs_and_ends_once(state: RequestState, to: RequestState) -> None:
    exists = state not in ENDS and to is not RequestState.WAITING and (state, to) != (RequestState.RUNNING,) * 2
    if exists:
        assert state.advance(to) is to
    else:
        with pytest.raises(ValueError, match=f"{state.value} to {to.value}"):
            state.advance(to)


def test_only_ends_have_ended() -> None:
    assert {state for state in RequestState if state.ended} == ENDS


def request_of(seed: int | None, n: int = 3) -> GenerationRequest:
    return GenerationRequest("req-1", [[1], [2, 3]], SamplingParams(max_tokens=5, seed=seed), n=n)


def test_choices_are_numbered_prompt_by_prompt() -> None:
    sequences = request_of(seed=None).sequences()
    assert [sequence.id for sequence in sequences] == [f"req-1-{i}" for i in range(6)]
    assert [tuple(sequence.prompt_token_ids) for sequence in sequences] == [(1,)] * 3 + [(2, 3)] * 3
    assert request_of(seed=None).prompt_tokens == 3


def test_with_a_seed_each_continuation_has_its_own_and_each_prompt_the_same() -> None:
    assert [sequence.params.seed for sequence in request_of(seed=7).sequences()] == [7, 8, 9, 7, 8, 9]
    assert [sequence.params.seed for sequence in request_of(seed=None).sequences()] == [None] * 6


@pytest.mark.parametrize("seed", [2**63 - 1, -(2**63), -1, 0])
def test_seeds_stay_signed_64_bit_numbers(seed: int) -> None:
    seeds = [sequence.params.seed for sequence in request_of(seed).sequences()[:3]]
    assert len(set(seeds)) == 3
    assert all(-(2**63) <= (s or 0) < 2**63 for s in seeds)
