"""What is asked of a server and when: mixed lengths, Poisson arrivals, everything drawn from seeds."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import orjson

from bench.arrivals import poisson
from bench.bodies import prompt

# Tokens of a prompt's sentence around its words, each of which is one token to the tokenizers of the known models.
SENTENCE_TOKENS = 18
# Requests of two plans never share a number, hence no prompt, hence no cached prefix.
PLAN_STRIDE = 100_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """A lognormal distribution of token counts, clamped to [least, most]."""

    least: int
    median: int
    most: int
    sigma: float

    def draw(self, rng: random.Random) -> int:
        return min(max(round(self.median * rng.lognormvariate(0, self.sigma)), self.least), self.most)


@dataclass(frozen=True, slots=True)
class Workload:
    """Independent lengths of prompts and answers. Equal seeds give the same sequence at every rate."""

    prompt: Lengths
    output: Lengths
    seed: int

    def requests(self, first: int) -> "Iterator[Request]":
        """Endless, numbered from `first` on."""
        rng = random.Random(self.seed)
        number = first
        while True:
            yield Request(number, self.prompt.draw(rng), self.output.draw(rng))
            number += 1


@dataclass(frozen=True, slots=True)
class Request:
    number: int
    prompt_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    def body(self, model: str, *, max_tokens: int | None = None, timings: bool = False) -> bytes:
        """A completion that streams exactly `output_tokens` tokens (or `max_tokens`), greedily."""
        extra = {"include_timings": True} if timings else {}
        return orjson.dumps(
            {
                "model": model,
                "prompt": prompt(self.number, max(1, self.prompt_tokens - SENTENCE_TOKENS)),
                "max_tokens": max_tokens or self.output_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
                **extra,
            }
        )


@dataclass(frozen=True)
class Phase:
    """Poisson arrivals at `rate` per second, until `seconds` have passed and `arrivals` have been."""

    rate: float
    seconds: float
    arrivals: int = 0

    def offsets(self, seed: int) -> list[float]:
        offsets: list[float] = []
        for offset in poisson(self.rate, seed):
            if offset > self.seconds and len(offsets) >= self.arrivals:
                break
            offsets.append(offset)
        return offsets


@dataclass(frozen=True)
class Plan:
    """Requests with their due times in seconds; the first `warmup` of them are sent but not measured.

    `window_s` is the span of time in which the measured ones are due.
    """

    offsets: Sequence[float]
    requests: Sequence[Request]
    warmup: int
    window_s: float

    @property
    def measured(self) -> Sequence[Request]:
        return self.requests[self.warmup :]


def make_plan(workload: Workload, phases: Sequence[Phase], *, seed: int, number: int, warmup_s: float = 0.0) -> Plan:
    """The phases one after the other, `warmup_s` of the first one's rate ahead of them."""
    offsets: list[float] = []
    start, warmup = warmup_s, 0
    if warmup_s:
        offsets = Phase(phases[0].rate, warmup_s).offsets(seed)
        warmup = len(offsets)
    for index, phase in enumerate(phases, start=1):
        found = phase.offsets(seed + 1000 * index)
        offsets += [start + offset for offset in found]
        start += max(phase.seconds, found[-1] if found else 0.0)
    requests = list(islice(workload.requests(number * PLAN_STRIDE), len(offsets)))
    return Plan(offsets, requests, warmup, start - warmup_s)
