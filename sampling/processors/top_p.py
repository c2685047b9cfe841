"""Top-p for a CPU engine without the sort of the whole vocabulary that vLLM's own does.

An operator names it in the engine's arguments, `logits_processors: ["sampling.processors.top_p:SortFreeTopP"]`; the
front end then hands it the requests' `top_p`, but for those with top-k, which vLLM applies first.
"""

from typing import Any

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from sampling.top_p import apply_top_p

TOP_P = "streamgauge_top_p"  # of SamplingParams.extra_args, whose own top_p is 1 then


class SortFreeTopP(LogitsProcessor):
    """For vLLM's V1 runner, where it sees the logits after temperature and min-p, of batches with a random row."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        if device.type != "cpu":
            raise ValueError("sampling.processors.top_p:SortFreeTopP is for an engine on a CPU")
        self._top_p: dict[int, float] = {}  # by row of the batch

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._top_p, batch_update, lambda params, prompt, output: _top_p(params))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask [rows, vocabulary] float32 logits, in place."""
        if not self._top_p:
            return logits
        rows = sorted(self._top_p)
        top_p = torch.tensor([self._top_p[row] for row in rows])
        if len(rows) == len(logits):
            return apply_top_p(logits, top_p)
        logits[rows] = apply_top_p(logits[rows], top_p)
        return logits


def _top_p(params: SamplingParams) -> float | None:
    found: float | None = (params.extra_args or {}).get(TOP_P)
    return found
