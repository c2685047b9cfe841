"""Top-n-sigma: what lies within n standard deviations of the largest logit."""

import torch

from sampling.processors.base import Group, Sampler
from sampling.shaping import Shaping


class TopNSigma(Sampler):
    """Keep l >= max(l) - n * std(l), over the logits that are still in.

    Tang et al., "Top-nσ: Not All Logits Are You Need" (2024, arXiv 2411.07641). The deviation is the population's, as
    in llama.cpp. Temperature scales all three alike, so it doesn't matter that it comes later.
    """

    def wanted(self, shaping: Shaping) -> bool:
        return shaping.top_n_sigma > 0

    def apply(self, logits: torch.Tensor, group: Group) -> torch.Tensor:
        present = logits > -torch.inf
        count = present.sum(dim=-1, keepdim=True)
        values = logits.masked_fill(~present, 0.0)
        mean = values.sum(dim=-1, keepdim=True) / count
        variance = ((values - mean).square() * present).sum(dim=-1, keepdim=True) / count
        lowest = logits.amax(dim=-1, keepdim=True) - group.column("top_n_sigma") * variance.sqrt()
        return logits.masked_fill_(logits < lowest, -torch.inf)
