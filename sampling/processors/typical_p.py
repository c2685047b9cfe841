"""Locally typical sampling: the tokens whose surprise is nearest to what the distribution makes one expect."""

import torch

from sampling.processors.base import Group, Sampler
from sampling.shaping import Shaping


class TypicalP(Sampler):
    """With p = softmax(l) and H = -Σ p ln p: in ascending order of |-ln p - H|, the fewest tokens of mass >= typical_p.

    Meister et al., "Locally Typical Sampling" (2022, arXiv 2202.00666). Of tokens equally far from H the one with the
    smaller id comes first.
    """

    def wanted(self, shaping: Shaping) -> bool:
        return shaping.typical_p < 1

    def apply(self, logits: torch.Tensor, group: Group) -> torch.Tensor:
        logprobs = torch.log_softmax(logits, dim=-1)
        probabilities = logprobs.exp()
        entropy = torch.special.entr(probabilities).sum(dim=-1, keepdim=True)  # its 0 ln 0 is 0
        order = (-logprobs - entropy).abs().argsort(dim=-1, stable=True)
        masses = probabilities.gather(-1, order)
        enough_before = masses.cumsum(dim=-1) - masses >= group.column("typical_p")
        enough_before[:, 0] = False
        outside = torch.empty_like(enough_before).scatter_(-1, order, enough_before)
        return logits.masked_fill_(outside, -torch.inf)
