"""Dynamic temperature: the surer the model, the colder."""

import torch

from sampling.processors.base import Group, Row, Sampler
from sampling.shaping import Shaping


class DynamicTemperature(Sampler):
    """T' = low + (high - low) * (H / Hmax) ** exponent, between low = max(0, T - range) and high = T + range.

    H is the entropy of softmax(l), Hmax = ln n the greatest that n tokens still in allow; range and exponent are the
    request's `dynatemp_` fields. llama.cpp's `temp_ext` sampler. The engine divides by T afterwards, so this multiplies
    by T / T'. At T' = 0 only the largest stays. A token that is alone stays as it is, and so do greedy rows.
    """

    def wanted(self, shaping: Shaping) -> bool:
        return shaping.dynatemp_range > 0

    def apply(self, logits: torch.Tensor, group: Group) -> torch.Tensor:
        given = group.column_of("temperature", lambda row: row.temperature)
        count = (logits > -torch.inf).sum(dim=-1, keepdim=True)
        fixed = (given == 0) | (count < 2)
        dynamic = _temperature(logits, count, group)
        logits *= torch.where(fixed, 1.0, given / dynamic.clamp(min=_COLDEST))
        frozen = (dynamic < _COLDEST) & ~fixed
        return logits.masked_fill_(frozen & (logits < logits.amax(dim=-1, keepdim=True)), -torch.inf)


_COLDEST = 1e-5  # below it vLLM too takes the largest


def _temperature(logits: torch.Tensor, count: torch.Tensor, group: Group) -> torch.Tensor:
    """T' of each row, [rows, 1]; of no meaning where fewer than two tokens are in."""
    low = group.column_of("dynatemp_low", _low)
    high = group.column_of("dynatemp_high", lambda row: row.temperature + row.shaping.dynatemp_range)
    entropy: torch.Tensor = torch.special.entr(torch.softmax(logits, dim=-1)).sum(dim=-1, keepdim=True)
    unsure = (entropy / count.log()).clamp(max=1.0)
    return low + (high - low) * unsure.pow(group.column("dynatemp_exponent"))


def _low(row: Row) -> float:
    return max(0.0, row.temperature - row.shaping.dynatemp_range)
