"""What every sampler here is: it shapes some rows of a step's logits, all at once. Knows torch, not vLLM."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sampling.shaping import Shaping


@dataclass(eq=False, slots=True)
class Row:
    """A request in the batch. `output` grows from step to step; `temperature` 0 is greedy.

    `states` is each sampler's own memory of the request. It must outlive a preemption, so nothing in it may depend on
    the row's place in the batch. While a request is computed anew after one, its tokens may be fewer than they were,
    for some steps from which nothing is sampled.
    """

    shaping: Shaping
    temperature: float
    seed: int
    prompt: list[int]
    output: list[int]
    states: "dict[type[Sampler], Any]" = field(default_factory=dict)

    def tokens_from(self, position: int) -> list[int]:
        """Prompt and output as one sequence, from `position` on; costs nothing for what comes before it."""
        skipped = max(position - len(self.prompt), 0)
        return self.prompt[position:] + self.output[skipped:]

    def state(self, sampler: "type[Sampler]", make: Callable[["Row"], Any]) -> Any:
        """The sampler's memory of this request, made on first use."""
        if sampler not in self.states:
            self.states[sampler] = make(self)
        return self.states[sampler]

    def uniform(self) -> float:
        """The draw in [0, 1) for the token now being sampled: by seed and position alone, whoever shares the batch."""
        bits = _splitmix64((self.seed & _MASK) ^ _splitmix64(len(self.output)))
        return (bits >> 11) / 2**53  # as many as a float holds: all 64 would round up to 1


class Group:
    """The rows of a step that one sampler shapes; the same object from step to step while they stay the same."""

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        self.rows = rows
        self.device = device
        self._columns: dict[str, torch.Tensor] = {}

    def column(self, name: str) -> torch.Tensor:
        """A field of each row's `Shaping`, float32 [rows, 1]."""
        return self.column_of(name, lambda row: getattr(row.shaping, name))

    def column_of(self, name: str, value: Callable[[Row], float]) -> torch.Tensor:
        """A figure of each row that never changes, float32 [rows, 1]; computed once for the group."""
        if name not in self._columns:
            self._columns[name] = self.fresh([value(row) for row in self.rows])
        return self._columns[name]

    def fresh(self, values: Sequence[float]) -> torch.Tensor:
        """This step's figure of each row, float32 [rows, 1]."""
        return torch.tensor(values, dtype=torch.float32, device=self.device).unsqueeze(1)

    def states(self, sampler: "type[Sampler]", make: Callable[[Row], Any]) -> list[Any]:
        """Each row's memory for a sampler, made on first use."""
        return [row.state(sampler, make) for row in self.rows]


class Sampler(ABC):
    """Shapes distributions; one object serves the whole engine, what it remembers lives in `Row.states`."""

    @abstractmethod
    def wanted(self, shaping: Shaping) -> bool:
        """Whether a request with these values is changed at all."""

    @abstractmethod
    def apply(self, logits: torch.Tensor, group: Group) -> torch.Tensor:
        """The shaped logits, in place or new; [rows, vocabulary] float32, before temperature.

        A token is taken out with -inf; some may be out already. At least one that was in must stay in.
        """


_MASK = 2**64 - 1


def _splitmix64(value: int) -> int:
    """Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014): the mixing function."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
