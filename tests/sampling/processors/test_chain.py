"""The processor under both of vLLM's model runners: the right rows are shaped, with the right tokens and memory."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState
from vllm.v1.worker.gpu.sample.logits_processor.loader import build_custom_logits_processors_params_validator

from sampling.processors.chain import SHAPING, ShapingProcessor
from sampling.processors.mirostat import Mirostat
from sampling.processors.top_n_sigma import TopNSigma
from sampling.shaping import Shaping
from tests.sampling.processors.batch import OUT, Logits, kept, random_logits, row, shape

VOCABULARY, SLOTS, CONTEXT = 40, 6, 64
CPU = torch.device("cpu")


class Request:
    """Its logits depend on its name and the position alone."""

    def __init__(self, name: int, prompt: Sequence[int] = (1, 2), seed: int | None = None, **shaping: Any) -> None:
        self.name, self.prompt, self.output = name, list(prompt), list[int]()
        extra = {SHAPING: Shaping(**shaping).to_wire()} if shaping else None
        self.params = SamplingParams(temperature=0.9, seed=seed, extra_args=extra)

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output

    def logits(self) -> Logits:
        random = np.random.default_rng(1000 * self.name + len(self.output))
        return random.normal(scale=3, size=VOCABULARY).astype(np.float32)


class V1:
    """The batch as the CPU's model runner keeps it: dense, with each change told."""

    def __init__(self, *requests: Request) -> None:
        self.processor = ShapingProcessor(None, CPU, False)
        self.batch: list[Request] = []
        for request in requests:
            self.join(request)

    def join(self, request: Request, index: int | None = None) -> None:
        """At the end, or in the place of one that leaves."""
        index = len(self.batch) if index is None else index
        self.batch[index : index + 1] = [request]
        self.tell(added=[(index, request.params, request.prompt, request.output)])

    def leave(self, request: Request) -> None:
        """The last fills the gap."""
        index, last = self.batch.index(request), len(self.batch) - 1
        self.batch[index] = self.batch[last]
        self.batch.pop()
        if index == last:
            self.tell(removed=[index])
        else:
            self.tell(moved=[(last, index, MoveDirectionality.UNIDIRECTIONAL)])

    def swap(self, one: int, other: int) -> None:
        self.batch[one], self.batch[other] = self.batch[other], self.batch[one]
        self.tell(moved=[(one, other, MoveDirectionality.SWAP)])

    def tell(self, removed: Sequence[int] = (), added: Sequence[Any] = (), moved: Sequence[Any] = ()) -> None:
        self.processor.update_state(BatchUpdate(len(self.batch), removed, added, moved))

    def step(self) -> dict[Request, Logits]:
        self.processor.update_state(None)
        shaped = self.processor.apply(_logits(self.batch))
        return dict(zip(self.batch, shaped.numpy(), strict=True))


class V2:
    """The buffers as the GPU's model runner keeps them: a slot for each request, a step's rows in any order.

    Tokens that a step has shown are wiped, so that reading one again would be noticed.
    """

    def __init__(self) -> None:
        self.tokens = torch.zeros(SLOTS, CONTEXT, dtype=torch.int32)
        self.prompts = np.zeros(SLOTS, dtype=np.int32)
        fields: dict[str, Any] = {
            "all_token_ids": SimpleNamespace(gpu=self.tokens),
            "prompt_len": SimpleNamespace(np=self.prompts),
            "prefill_len": None,
            "total_len": None,
        }
        state = LogitsProcRequestState(device=CPU, max_num_reqs=SLOTS, vocab_size=VOCABULARY, **fields)
        self.processor = ShapingProcessor(None, state)
        self.slots: dict[Request, int] = {}
        self.shown = [0] * SLOTS

    def join(self, request: Request, slot: int) -> bool:
        self.slots[request], self.shown[slot], self.prompts[slot] = slot, 0, len(request.prompt)
        return self.processor.add_request(slot, request.params)

    def step(self, *requests: Request, upto: int = CONTEXT) -> dict[Request, Logits]:
        """`upto`: the tokens of each request that are computed, where a prompt goes through in pieces."""
        slots = [self.slots[request] for request in requests]
        totals = [min(len(request.tokens), upto) for request in requests]
        for request, slot, total in zip(requests, slots, totals, strict=True):
            new = request.tokens[self.shown[slot] : total]
            self.tokens[slot, self.shown[slot] : total] = torch.tensor(new, dtype=torch.int32)
        shaped = self.processor.apply(_logits(requests), _ctx(slots, totals))
        for slot, total in zip(slots, totals, strict=True):
            self.tokens[slot, :total] = -1
            self.shown[slot] = total
        return dict(zip(requests, shaped.numpy(), strict=True))


def _logits(requests: Sequence[Request]) -> torch.Tensor:
    return torch.from_numpy(np.stack([request.logits() for request in requests]))


def _ctx(slots: list[int], totals: list[int]) -> LogitsContext:
    mapping, nothing = np.array(slots, dtype=np.int32), torch.zeros(len(slots), dtype=torch.int32)
    return LogitsContext(
        expanded_idx_mapping=torch.from_numpy(mapping),
        idx_mapping=torch.from_numpy(mapping),
        idx_mapping_np=mapping,
        expanded_local_pos=nothing,
        input_ids=nothing,
        pos=torch.tensor(totals) - 1,
        seq_lens_upper_bound_np=np.array([*totals, 0, 0], dtype=np.int32),  # it is padded
    )


def same(shaped: Logits, expected: Logits) -> None:
    np.testing.assert_allclose(shaped, expected, rtol=1e-6)


def expect(request: Request, shaped: Logits) -> None:
    """That a request that asks for top-n-sigma alone has been shaped so, and one that asks for nothing not at all."""
    n = Shaping.from_wire(request.params.extra_args[SHAPING]).top_n_sigma if request.params.extra_args else 0.0
    same(shaped, shape(TopNSigma(), [request.logits()], [row(top_n_sigma=n)])[0] if n else request.logits())


def without(request: Request, tokens: list[int]) -> Logits:
    logits = request.logits()
    logits[tokens] = OUT
    return logits


def go_on(*requests: Request, token: int = 3) -> None:
    for request in requests:
        request.output.append(token)


# ---- V1


def test_only_the_rows_that_want_it_change() -> None:
    v1 = V1(Request(0), Request(1, top_n_sigma=0.7), Request(2), Request(3, top_n_sigma=1.2))
    for _ in range(2):
        for request, shaped in v1.step().items():
            expect(request, shaped)


def test_a_batch_that_wants_nothing_is_not_touched() -> None:
    v1 = V1(Request(0), Request(1, dry_multiplier=0.0))
    logits = torch.from_numpy(random_logits(0, VOCABULARY, rows=2))
    before = logits.clone()
    assert v1.processor.apply(logits) is logits
    assert torch.equal(logits, before)


def test_it_is_done_with_when_the_last_that_wants_it_has_left() -> None:
    shaped_one, plain = Request(0, top_n_sigma=0.7), Request(1)
    v1 = V1(shaped_one, plain)
    v1.step()
    v1.leave(shaped_one)
    same(v1.step()[plain], plain.logits())


def test_rows_are_followed_through_every_change_of_the_batch() -> None:
    requests = [Request(i, **({"top_n_sigma": 0.2 * i} if i % 3 else {})) for i in range(10)]
    v1 = V1(*requests[:5])
    changes = (
        lambda: v1.swap(0, 4),
        lambda: v1.leave(requests[1]),
        lambda: v1.join(requests[5]),
        lambda: v1.swap(1, 2),
        lambda: v1.join(requests[6], index=0),
        lambda: v1.join(requests[7], index=1),
        lambda: v1.leave(v1.batch[-1]),
        lambda: v1.leave(v1.batch[0]),
        lambda: v1.join(requests[8]),
        lambda: v1.join(requests[9]),
    )
    for change in changes:
        change()
        for request, shaped in v1.step().items():
            expect(request, shaped)
            go_on(request)


def test_samplers_come_one_after_another() -> None:
    request = Request(3, top_n_sigma=1.0, mirostat=2, mirostat_tau=0.9)
    own = row(temperature=0.9, top_n_sigma=1.0, mirostat=2, mirostat_tau=0.9)
    first = shape(TopNSigma(), [request.logits()], [own])
    (shaped,) = V1(request).step().values()
    same(shaped, shape(Mirostat(), first, [own])[0])
    assert len(kept(shaped)) < len(kept(first[0]))


def test_a_request_that_was_preempted_has_its_memory_and_its_draws_still() -> None:
    asked: dict[str, Any] = {"mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.9, "xtc_probability": 0.5}
    steady, preempted = Request(4, seed=9, **asked), Request(4, seed=9, **asked)
    v1 = V1(steady, Request(5, top_n_sigma=1.0), preempted)
    for position in range(12):
        if position in (3, 8):
            v1.leave(preempted)
            v1.step()
            preempted.output = list(preempted.output)  # vLLM too may come with another list
            v1.join(preempted)
        shaped = v1.step()
        same(shaped[preempted], shaped[steady])
        go_on(steady, preempted, token=int(shaped[steady].argmax()))


def test_a_request_without_a_seed_keeps_the_draws_it_has_begun_with() -> None:
    request = Request(1, xtc_probability=0.5, xtc_threshold=0.02)
    answers = []
    for _ in range(2):
        v1 = V1(request)
        answers.append([])
        for length in range(30):
            request.output[:] = [0] * length
            answers[-1].append(bool(np.array_equal(v1.step()[request], request.logits())))
    assert answers[0] == answers[1]
    assert set(answers[0]) == {True, False}


def test_a_row_is_true_whatever_it_holds() -> None:
    # vLLM's process_dict_updates takes a false entry for none when its request leaves.
    assert row()


# ---- V2


def test_a_slots_request_is_shaped_wherever_its_row_is() -> None:
    v2, requests = V2(), [Request(i, **({"top_n_sigma": 0.5 * i} if i else {})) for i in range(3)]
    assert [v2.join(request, slot) for request, slot in zip(requests, (4, 0, 2), strict=True)] == [False, True, True]
    for order in ((0, 1, 2), (2, 0, 1), (1,), (2, 1), (0,)):
        for request, shaped in v2.step(*(requests[i] for i in order)).items():
            expect(request, shaped)


def test_the_tokens_of_a_request_are_followed() -> None:
    v2, request = V2(), Request(1, prompt=[5, 6, 7, 5], no_repeat_ngram_size=2)
    v2.join(request, 3)
    v2.step(request, upto=2)  # a prompt that goes through in pieces
    assert v2.step(request)[request][6] == OUT
    barred: tuple[tuple[int, list[int]], ...] = ((9, []), (5, [6, 9]), (6, [7]), (8, []), (9, [5]))
    for token, followers in barred:
        go_on(request, token=token)
        same(v2.step(request)[request], without(request, followers))


def test_a_slot_has_nothing_of_whom_it_had_before() -> None:
    v2, asked = V2(), {"no_repeat_ngram_size": 1}
    first, second, plain = Request(1, [5, 6], **asked), Request(2, [7], **asked), Request(3, [8])
    for request, barred in ((first, [5, 6]), (second, [7]), (plain, [])):
        v2.join(request, 0)
        same(v2.step(request)[request], without(request, barred))


def test_a_request_that_was_preempted_goes_on_in_another_slot() -> None:
    asked: dict[str, Any] = {"mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.9, "no_repeat_ngram_size": 2}
    v2, steady, preempted = V2(), Request(4, **asked), Request(4, **asked)
    v2.join(steady, 0)
    v2.join(preempted, 1)
    for position in range(12):
        if position == 5:
            v2.join(preempted, 4)
            for upto in (1, 4):
                v2.step(preempted, upto=upto)
        shaped = v2.step(preempted, steady)
        same(shaped[preempted], shaped[steady])
        go_on(steady, preempted, token=int(shaped[steady].argmax()))


# ---- both


ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"mirostat": 2, "mirostat_tau": 1.5, "mirostat_eta": 0.5},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05, "dynatemp_range": 0.5},
    {"dry_multiplier": 0.8, "dry_allowed_length": 1, "no_repeat_ngram_size": 3},
    {"typical_p": 0.8, "top_n_sigma": 2.0, "dry_multiplier": 2.0},
)


def test_both_interfaces_shape_alike() -> None:
    random = np.random.default_rng(6)
    for_v1, for_v2 = ([Request(i, seed=i, **asked) for i, asked in enumerate(ASKED)] for _ in range(2))
    v1, v2 = V1(*for_v1), V2()
    for i, request in enumerate(for_v2):
        v2.join(request, i)
    for _ in range(20):
        one, other = v1.step(), v2.step(*(for_v2[i] for i in random.permutation(len(for_v2))))
        for mine, yours in zip(for_v1, for_v2, strict=True):
            same(one[mine], other[yours])
            go_on(mine, yours, token=int(random.choice(kept(one[mine])[:4])))


@pytest.mark.parametrize("shaping", [{}, {"typical_p": 0.5}])
def test_vllm_finds_the_class_by_its_name(shaping: dict[str, Any]) -> None:
    validate = build_custom_logits_processors_params_validator(["sampling.processors.chain:ShapingProcessor"])
    validate(Request(0, **shaping).params)
