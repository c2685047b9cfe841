"""The executor against steps as vLLM's scheduler would order them; its life in a real engine is tested elsewhere."""

import time

import pytest
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from bench.null_executor import CannedBatch, DueFuture, NullSettings


def new(req_id: str, prompt: int, computed: int = 0, prefill: int | None = None) -> NewRequestData:
    return NewRequestData(
        req_id=req_id,
        prompt_token_ids=[1] * prompt,
        mm_features=[],
        sampling_params=None,
        pooling_params=None,
        block_ids=([],),
        num_computed_tokens=computed,
        lora_request=None,
        prefill_token_ids=None if prefill is None else [1] * prefill,
    )


def step(
    scheduled: dict[str, int],
    *,
    new: tuple[NewRequestData, ...] = (),
    known: dict[str, tuple[int, int]] | None = None,
    finished: frozenset[str] = frozenset(),
) -> SchedulerOutput:
    """`known` gives a request's computed tokens and its generated ones."""
    output = SchedulerOutput.make_empty()
    output.scheduled_new_reqs = list(new)
    output.num_scheduled_tokens = scheduled
    output.total_num_scheduled_tokens = sum(scheduled.values())
    output.finished_req_ids = set(finished)
    cached = CachedRequestData.make_empty()
    for req_id, (computed, generated) in (known or {}).items():
        cached.req_ids.append(req_id)
        cached.num_computed_tokens.append(computed)
        cached.num_output_tokens.append(generated)
    output.scheduled_cached_reqs = cached
    return output


@pytest.fixture
def batch() -> CannedBatch:
    return CannedBatch((7, 8, 9))


def test_a_prompt_that_fits_one_step_samples_at_once(batch: CannedBatch) -> None:
    output = batch.run(step({"a": 10}, new=(new("a", 10),)))
    assert output.req_ids == ["a"]
    assert output.sampled_token_ids == [[7]]


def test_a_prompt_in_chunks_samples_with_its_last_one_only(batch: CannedBatch) -> None:
    assert batch.run(step({"a": 4}, new=(new("a", 10),))).sampled_token_ids == [[]]
    assert batch.run(step({"a": 4}, known={"a": (4, 0)})).sampled_token_ids == [[]]
    assert batch.run(step({"a": 2}, known={"a": (8, 0)})).sampled_token_ids == [[7]]


def test_a_cached_prefix_counts_as_computed(batch: CannedBatch) -> None:
    assert batch.run(step({"a": 2}, new=(new("a", 10, computed=8),))).sampled_token_ids == [[7]]


def test_decoding_goes_through_the_canned_ids_and_starts_again(batch: CannedBatch) -> None:
    batch.run(step({"a": 10}, new=(new("a", 10),)))
    steps = [batch.run(step({"a": 1}, known={"a": (9 + made, made)})).sampled_token_ids for made in range(1, 5)]
    assert steps == [[[8]], [[9]], [[7]], [[8]]]


def test_requests_of_one_step_are_told_apart(batch: CannedBatch) -> None:
    batch.run(step({"a": 2}, new=(new("a", 2),)))
    output = batch.run(step({"a": 1, "b": 5, "c": 3}, new=(new("b", 9), new("c", 3)), known={"a": (2, 1)}))
    by_request = {req_id: output.sampled_token_ids[index] for req_id, index in output.req_id_to_index.items()}
    assert by_request == {"a": [8], "b": [], "c": [7]}


def test_a_preempted_request_goes_on_where_it_was(batch: CannedBatch) -> None:
    batch.run(step({"a": 4}, new=(new("a", 4),)))
    # Two tokens were generated; all six are computed again, in two steps.
    assert batch.run(step({"a": 3}, known={"a": (0, 2)})).sampled_token_ids == [[]]
    assert batch.run(step({"a": 3}, known={"a": (3, 2)})).sampled_token_ids == [[9]]


def test_a_preempted_request_that_comes_back_as_new_goes_on_too(batch: CannedBatch) -> None:
    assert batch.run(step({"a": 6}, new=(new("a", 4, prefill=6),))).sampled_token_ids == [[9]]


def test_an_id_that_finished_can_be_used_again(batch: CannedBatch) -> None:
    batch.run(step({"a": 4}, new=(new("a", 4),)))
    output = batch.run(step({"a": 4}, new=(new("a", 8),), finished=frozenset({"a"})))
    assert output.sampled_token_ids == [[]]


def test_a_result_cannot_be_had_before_it_is_due() -> None:
    due_ns = time.monotonic_ns() + 20_000_000
    future = DueFuture("answer", due_ns, "scope")
    assert not future.done()
    assert future.result() == "answer"
    assert time.monotonic_ns() >= due_ns
    assert future.done() and future.result() == "answer"


def test_settings_come_from_the_environment() -> None:
    assert NullSettings.from_env({}) == NullSettings(20_000_000, 0, 0, None)
    env = {
        "STREAMGAUGE_NULL_STEP_MS": "1.5",
        "STREAMGAUGE_NULL_TOKEN_US": "2",
        "STREAMGAUGE_NULL_SAMPLE_MS": "3",
        "STREAMGAUGE_NULL_IDS": "5, 6",
    }
    assert NullSettings.from_env(env) == NullSettings(1_500_000, 2_000, 3_000_000, (5, 6))
