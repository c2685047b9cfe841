"""Steps as vLLM's scheduler would order them."""

from dataclasses import dataclass, field

import pytest

from bench.canned import CANNED_TEXT, CannedBatch, NullSettings


@dataclass
class Sampling:
    num_logprobs: int | None


@dataclass
class New:
    req_id: str
    prompt_len: int
    num_computed_tokens: int = 0
    prefill_token_ids: list[int] | None = None
    sampling_params: "Sampling | None" = None


@dataclass
class Known:
    req_ids: list[str] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)
    num_output_tokens: list[int] = field(default_factory=list)


@dataclass
class Step:
    num_scheduled_tokens: dict[str, int]
    scheduled_new_reqs: list[New] = field(default_factory=list)
    scheduled_cached_reqs: Known = field(default_factory=Known)
    finished_req_ids: set[str] = field(default_factory=set)


def starting(*requests: New, scheduled: dict[str, int], finished: frozenset[str] = frozenset()) -> Step:
    return Step(scheduled, list(requests), finished_req_ids=set(finished))


def going_on(req_id: str, computed: int, generated: int, scheduled: int = 1) -> Step:
    return Step({req_id: scheduled}, scheduled_cached_reqs=Known([req_id], [computed], [generated]))


@pytest.fixture
def batch() -> CannedBatch:
    return CannedBatch((7, 8, 9))


def test_a_prompt_that_fits_one_step_samples_at_once(batch: CannedBatch) -> None:
    assert batch.run(starting(New("a", 10), scheduled={"a": 10})) == {"a": [7]}


def test_a_prompt_in_chunks_samples_with_its_last_one_only(batch: CannedBatch) -> None:
    assert batch.run(starting(New("a", 10), scheduled={"a": 4})) == {"a": []}
    assert batch.run(going_on("a", 4, 0, scheduled=4)) == {"a": []}
    assert batch.run(going_on("a", 8, 0, scheduled=2)) == {"a": [7]}


def test_a_cached_prefix_counts_as_computed(batch: CannedBatch) -> None:
    assert batch.run(starting(New("a", 10, num_computed_tokens=8), scheduled={"a": 2})) == {"a": [7]}


def test_decoding_goes_through_the_canned_ids_and_starts_again(batch: CannedBatch) -> None:
    batch.run(starting(New("a", 10), scheduled={"a": 10}))
    steps = [batch.run(going_on("a", 9 + made, made)) for made in range(1, 5)]
    assert steps == [{"a": [8]}, {"a": [9]}, {"a": [7]}, {"a": [8]}]


def test_requests_of_one_step_are_told_apart(batch: CannedBatch) -> None:
    batch.run(starting(New("a", 2), scheduled={"a": 2}))
    mixed = going_on("a", 2, 1)
    mixed.scheduled_new_reqs = [New("b", 9), New("c", 3)]
    mixed.num_scheduled_tokens |= {"b": 5, "c": 3}
    assert batch.run(mixed) == {"a": [8], "b": [], "c": [7]}


def test_a_preempted_request_goes_on_where_it_was(batch: CannedBatch) -> None:
    batch.run(starting(New("a", 4), scheduled={"a": 4}))
    # Two tokens were generated; all six are computed again, in two steps.
    assert batch.run(going_on("a", 0, 2, scheduled=3)) == {"a": []}
    assert batch.run(going_on("a", 3, 2, scheduled=3)) == {"a": [9]}


def test_a_preempted_request_that_comes_back_as_new_goes_on_too(batch: CannedBatch) -> None:
    assert batch.run(starting(New("a", 4, prefill_token_ids=[1] * 6), scheduled={"a": 6})) == {"a": [9]}


def test_an_id_that_finished_can_be_used_again(batch: CannedBatch) -> None:
    batch.run(starting(New("a", 4), scheduled={"a": 4}))
    assert batch.run(starting(New("a", 8), scheduled={"a": 4}, finished=frozenset({"a"}))) == {"a": []}


def test_settings_come_from_the_environment() -> None:
    assert NullSettings.from_env({}) == NullSettings(20_000_000, 0, 0, None, CANNED_TEXT)
    env = {
        "STREAMGAUGE_NULL_STEP_MS": "1.5",
        "STREAMGAUGE_NULL_TOKEN_US": "2",
        "STREAMGAUGE_NULL_SAMPLE_MS": "3",
        "STREAMGAUGE_NULL_IDS": "5, 6",
        "STREAMGAUGE_NULL_TEXT": "hello",
    }
    assert NullSettings.from_env(env) == NullSettings(1_500_000, 2_000, 3_000_000, (5, 6), "hello")


def test_as_many_alternatives_as_the_most_demanding_of_those_that_sample(batch: CannedBatch) -> None:
    wanting = [New("a", 1), New("b", 1, sampling_params=Sampling(2)), New("c", 1, sampling_params=Sampling(0))]
    batch.run(
        starting(*wanting, New("d", 1, sampling_params=Sampling(None)), scheduled={"a": 1, "b": 1, "c": 1, "d": 1})
    )
    assert batch.alternatives(["a", "d"]) is None
    assert batch.alternatives(["a", "b", "c"]) == 2
    assert batch.alternatives(["c", "d"]) == 0
    batch.run(starting(scheduled={}, finished=frozenset({"b"})))
    assert batch.alternatives(["a", "b", "c"]) == 0
