"""The one logits processor that vLLM loads: it keeps account of the batch and runs the samplers over it.

It has the interfaces of both model runners. V1 (CPU) reports each change of the batch, and its row numbers are the
batch's; V2 (GPU) has a slot per request and a mapping for each step. It is named in the engine's arguments and is no
entry point: under V1 only processors that are named see true token ids with asynchronous scheduling. It comes before
the engine's penalties (V1) or after them (V2), and always before temperature.
"""

import random
from itertools import islice
from typing import Any

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate
from vllm.v1.sample.logits_processor import LogitsProcessor as V1Processor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as V2Processor

from sampling.processors.base import Group, Row, Sampler
from sampling.processors.dry import Dry
from sampling.processors.dynatemp import DynamicTemperature
from sampling.processors.mirostat import Mirostat
from sampling.processors.no_repeat_ngram import NoRepeatNgram
from sampling.processors.top_n_sigma import TopNSigma
from sampling.processors.typical_p import TypicalP
from sampling.processors.xtc import Xtc
from sampling.shaping import Shaping

ROW = "streamgauge_row"  # under this name a request's Row stays with its params, where a preemption doesn't reach it
SHAPING = "streamgauge_shaping"  # of SamplingParams.extra_args: Shaping.to_wire()

SAMPLERS: tuple[Sampler, ...] = (
    Dry(),
    NoRepeatNgram(),
    TopNSigma(),
    TypicalP(),
    Xtc(),
    DynamicTemperature(),
    Mirostat(),
)
"""In the order of application."""


class ShapingProcessor(V1Processor, V2Processor):
    """Free while no request of the batch wants shaping."""

    def __init__(
        self, vllm_config: Any, device: torch.device | LogitsProcRequestState, is_pin_memory: bool | None = None
    ) -> None:
        self._rows: dict[int, Row] = {}  # by row of the batch (V1) or by slot (V2)
        self._planned: dict[int, Row] = {}  # by row of the logits
        self._parts: list[_Part] = []
        self._slots = device if isinstance(device, LogitsProcRequestState) else None

    # ---- both

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Nothing to say: the front end has checked them."""

    def apply(self, logits: torch.Tensor, ctx: LogitsContext | None = None) -> torch.Tensor:
        """Shape [rows, vocabulary] float32 logits, in place."""
        if not (self._rows or self._planned):  # a plan that is over has to let its rows go
            return logits
        rows = dict(self._rows) if ctx is None else self._follow(ctx)
        if rows != self._planned:
            self._planned, self._parts = rows, _plan(rows, logits.device)
        for part in self._parts:
            logits = part.apply(logits)
        return logits

    # ---- V1

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._rows, batch_update, _row)

    # ---- V2

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        self._rows.pop(req_idx, None)
        row = _row(sampling_params, None, [])
        if row is not None:
            self._rows[req_idx] = row
        return row is not None

    def _follow(self, ctx: LogitsContext) -> dict[int, Row]:
        """The step's rows by their place in the logits, with the tokens that the device has added since.

        One copy from the device per step, hence a wait for it, while requests are there that want shaping.
        """
        assert self._slots is not None
        rows: dict[int, Row] = {}
        news: list[torch.Tensor] = []
        for place, slot in enumerate(ctx.idx_mapping_np.tolist()):
            if row := self._rows.get(slot):
                known, total = len(row.prompt) + len(row.output), int(ctx.seq_lens_upper_bound_np[place])
                rows[place] = row
                news.append(self._slots.all_token_ids.gpu[slot, known:total])
        tokens = iter(torch.cat(news).tolist() if news else [])
        for (place, row), new in zip(rows.items(), news, strict=True):
            prompt_tokens = int(self._slots.prompt_len.np[ctx.idx_mapping_np[place]])
            _extend(row, list(islice(tokens, len(new))), prompt_tokens)
        return rows


def _extend(row: Row, tokens: list[int], prompt_tokens: int) -> None:
    missing = prompt_tokens - len(row.prompt)
    row.prompt.extend(tokens[:missing])
    row.output.extend(tokens[missing:])


class _Part:
    """One sampler and the rows that want it."""

    def __init__(self, sampler: Sampler, rows: dict[int, Row], device: torch.device) -> None:
        places = sorted(rows)
        self._sampler = sampler
        self._group = Group([rows[place] for place in places], device)
        self._index = torch.tensor(places, device=device)
        self._size = len(places)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._size == len(logits):
            return self._sampler.apply(logits, self._group)
        logits[self._index] = self._sampler.apply(logits[self._index], self._group)
        return logits


def _plan(rows: dict[int, Row], device: torch.device) -> list[_Part]:
    wanted = ((sampler, {i: row for i, row in rows.items() if sampler.wanted(row.shaping)}) for sampler in SAMPLERS)
    return [_Part(sampler, own, device) for sampler, own in wanted if own]


def _row(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> Row | None:
    extra = params.extra_args or {}
    values = extra.get(SHAPING)
    if not values:
        return None
    row: Row | None = extra.get(ROW)
    if row is None:
        # vLLM seeds `random` alike in the ranks of a tensor-parallel group, which must draw alike.
        seed = random.getrandbits(64) if params.seed is None else params.seed
        extra[ROW] = row = Row(Shaping.from_wire(values), params.temperature, seed, [], [])
    row.prompt, row.output = prompt or [], output
    return row
