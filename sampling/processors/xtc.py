"""Exclude top choices: now and then all likely tokens but the least of them are out."""

import math

import torch

from sampling.processors.base import Group, Sampler
from sampling.shaping import Shaping


class Xtc(Sampler):
    """With the chance `xtc_probability`: of the tokens with softmax(l) >= xtc_threshold, only the least likely stays.

    text-generation-webui's pull request 6335, by the method's author, and llama.cpp's `xtc`. With fewer than two such
    tokens nothing happens, hence never with a threshold above 0.5. The draw depends on the request's seed and on the
    position alone.
    """

    def wanted(self, shaping: Shaping) -> bool:
        return shaping.xtc_probability > 0 and shaping.xtc_threshold <= 0.5

    def apply(self, logits: torch.Tensor, group: Group) -> torch.Tensor:
        thresholds = [
            row.shaping.xtc_threshold if row.uniform() < row.shaping.xtc_probability else math.inf for row in group.rows
        ]
        if min(thresholds) == math.inf:
            return logits
        top = (torch.softmax(logits, dim=-1) >= group.fresh(thresholds)) & (logits > -torch.inf)
        least = logits.masked_fill(~top, torch.inf).argmin(dim=-1, keepdim=True)
        return logits.masked_fill_(top.scatter_(-1, least, False), -torch.inf)
