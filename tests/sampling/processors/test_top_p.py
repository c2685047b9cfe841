"""The sort-free top-p in vLLM's V1 runner: the rows that have it, and no others."""

import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from sampling.processors.top_p import TOP_P, SortFreeTopP
from sampling.top_p import apply_top_p

VOCABULARY = 50
CPU = torch.device("cpu")


def params(top_p: float | None) -> SamplingParams:
    return SamplingParams(extra_args=None if top_p is None else {TOP_P: top_p})


def batch(*top_p: float | None) -> SortFreeTopP:
    processor = SortFreeTopP(None, CPU, False)
    added = [(row, params(p), None, []) for row, p in enumerate(top_p)]
    processor.update_state(BatchUpdate(len(top_p), removed=[], added=added, moved=[]))
    return processor


def logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(3)) * 3


def test_a_batch_without_any_is_left_as_it_is() -> None:
    step = logits(2)
    assert batch(None, None).apply(step) is step
    assert torch.equal(step, logits(2))


@pytest.mark.parametrize("top_p", [(0.5, 0.9), (None, 0.5, None), (0.3, None)])
def test_each_row_is_narrowed_by_its_own(top_p: tuple[float | None, ...]) -> None:
    found = batch(*top_p).apply(logits(len(top_p)))
    for row, p in enumerate(top_p):
        alone = logits(len(top_p))[row : row + 1]
        expected = alone if p is None else apply_top_p(alone, torch.tensor([p]))
        assert torch.equal(found[row : row + 1], expected)


def test_rows_move_and_leave() -> None:
    processor = batch(0.3, None, 0.9)
    moved = [(2, 0, MoveDirectionality.UNIDIRECTIONAL)]
    processor.update_state(BatchUpdate(2, removed=[0], added=[], moved=moved))
    found = processor.apply(logits(2))
    assert torch.equal(found[:1], apply_top_p(logits(2)[:1], torch.tensor([0.9])))
    assert torch.equal(found[1], logits(2)[1])


def test_it_takes_no_likeliest_token_so_greedy_may_ignore_it() -> None:
    processor = batch(0.01, 0.5)
    assert processor.is_argmax_invariant()
    assert torch.equal(processor.apply(logits(2)).argmax(dim=-1), logits(2).argmax(dim=-1))


def test_it_refuses_an_engine_that_is_not_on_a_cpu() -> None:
    with pytest.raises(ValueError, match="CPU"):
        SortFreeTopP(None, torch.device("cuda"), False)
