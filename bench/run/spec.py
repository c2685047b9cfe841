"""What a run of load is: all of it, so that a result can say how it was made and be repeated."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Endpoint = Literal["chat", "completions", "responses"]
Shape = Literal["constant", "poisson", "gamma", "ramp", "trace"]


class SpecError(Exception):
    """The run can't be made as asked; the message is for people."""


class Lost(Exception):
    """A process of the load ended without an outcome; what it had to say is on its standard error."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts: `fixed` at `mean`; `normal` or `lognormal` with `spread`; clamped to the bounds.

    `spread` is the standard deviation in tokens (normal) or of the logarithm (lognormal, whose median is `mean` then).
    """

    kind: Literal["fixed", "normal", "lognormal"] = "fixed"
    mean: int = 128
    spread: float = 0.0
    least: int = 1
    most: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Prompts:
    """`synthetic` ones of given lengths, or those of a file: ShareGPT's JSON, or JSONL with `prompt` or `messages`.

    `prefix_tokens` of every synthetic prompt are shared by all that have the same one of `prefixes` prefixes. `turns`
    is how many turns a conversation has at most; later turns carry the answers before them.
    """

    kind: Literal["synthetic", "sharegpt", "jsonl"] = "synthetic"
    path: Path | None = None
    lengths: Lengths = Lengths()
    prefix_tokens: int = 0
    prefixes: int = 1
    turns: int = 1


@dataclass(frozen=True, slots=True)
class Closed:
    """So many conversations at a time."""

    concurrency: int


@dataclass(frozen=True, slots=True)
class Open:
    """Conversations begin when they are due, however many are under way. `rate` per second, on average.

    `burstiness` is gamma's shape: 1 is Poisson, below is burstier. A ramp goes from `rate` to `rate_end` over the run.
    A trace has its own times, taken `speed` times as fast.
    """

    shape: Shape = "poisson"
    rate: float = 1.0
    burstiness: float = 1.0
    rate_end: float = 0.0
    trace: Path | None = None
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Spec:
    """`requests` are measured, `warmup` ones come before and are not. Equal seeds give equal prompts and arrivals.

    `url` is the server's, with or without `/v1`. `processes` share the load between them.
    """

    url: str
    model: str
    load: Closed | Open
    requests: int
    endpoint: Endpoint = "chat"
    prompts: Prompts = Prompts()
    output: Lengths = Lengths()
    warmup: int = 0
    seed: int = 0
    api_key: str | None = field(default=None, repr=False)
    deadline_s: float = 600.0
    processes: int = 1
    ignore_eos: bool = True
    include_timings: bool = True
    temperature: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For the result; the key stays out of it."""
        found = asdict(self) | {"load": {"kind": type(self.load).__name__.lower(), **asdict(self.load)}}
        del found["api_key"]
        return found
