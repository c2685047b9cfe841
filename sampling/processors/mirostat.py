"""Mirostat 2.0: a bound on surprise that a controller moves, so that the surprise stays near a target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sampling.processors.base import Group, Row, Sampler
from sampling.shaping import Shaping


class Mirostat(Sampler):
    """Take out tokens of surprise -log2 p > mu, never the likeliest; p = softmax(l / T). Then mu -= eta * (S - tau).

    S is the surprise, in bits, of the token then sampled, under p renormalised over what was left; mu begins at 2 tau.
    Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity" (2021, arXiv
    2007.14966), in the second version, llama.cpp's `mirostat_v2`. Greedy rows are left alone.

    The engine's top-k, top-p and min-p, where also asked for, narrow the choice further; S doesn't know of them.
    """

    def wanted(self, shaping: Shaping) -> bool:
        return shaping.mirostat == 2

    def apply(self, logits: torch.Tensor, group: Group) -> torch.Tensor:
        states: list[_State] = group.states(Mirostat, _State.of)
        _observe(group.rows, states)
        temperature = group.column_of("mirostat_temperature", lambda row: row.temperature or 1.0)
        surprise = torch.log_softmax(logits / temperature, dim=-1) / -math.log(2)
        bounds = [state.mu if row.temperature else math.inf for row, state in zip(group.rows, states, strict=True)]
        bound = torch.maximum(group.fresh(bounds), surprise.amin(dim=-1, keepdim=True))
        outside = surprise > bound
        surprise.masked_fill_(outside, torch.inf)
        surprise += surprise.neg().exp2().sum(dim=-1, keepdim=True).log2()
        _keep(group.rows, states, surprise)
        return logits.masked_fill_(outside, -torch.inf)


@dataclass(slots=True)
class _State:
    """`surprise` [vocabulary], in bits, of what may come at `position` of the output."""

    mu: float
    position: int = 0
    surprise: torch.Tensor | None = None

    @classmethod
    def of(cls, row: Row) -> "_State":
        return cls(2 * row.shaping.mirostat_tau)


def _observe(rows: Sequence[Row], states: list[_State]) -> None:
    """Move mu for each token sampled since, all in one look at the device; `_keep` moves on to the next position."""
    news: list[tuple[Row, _State]] = []
    surprises: list[torch.Tensor] = []
    for row, state in zip(rows, states, strict=True):
        if state.surprise is not None and state.position < len(row.output):
            news.append((row, state))
            surprises.append(state.surprise[row.output[state.position]])
    if not news:
        return
    for (row, state), surprise in zip(news, torch.stack(surprises).tolist(), strict=True):
        # A token that had been taken out was not sampled but forced upon the request.
        if math.isfinite(surprise):
            state.mu -= row.shaping.mirostat_eta * (surprise - row.shaping.mirostat_tau)


def _keep(rows: Sequence[Row], states: list[_State], surprise: torch.Tensor) -> None:
    """Remember the distributions: in copies, since a view would hold the whole step's for as long as one row waits."""
    for row, state, own in zip(rows, states, surprise, strict=True):
        # Earlier positions come again while a preempted request is computed anew.
        if len(row.output) >= state.position:
            state.position, state.surprise = len(row.output), own.clone()
