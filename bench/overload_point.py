"""One arm at one offered load: what became of each request, and the figures that follow."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise

import orjson

from bench.metrics import Distribution, percentile
from bench.overload_plan import Request
from bench.sample import RequestSample

REFUSAL_STATUSES = (429, 503)
# A generator whose p99 is later than this share of the TTFT objective has measured itself.
LATENESS_SHARE = 0.05


class Fate(StrEnum):
    """GOOD met both objectives, LATE was completed without, REFUSED got a 429 or 503, FAILED is everything else."""

    GOOD = "good"
    LATE = "late"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Objectives:
    """Seconds to the first token, counted from the scheduled arrival, and seconds per output token."""

    ttft_s: float
    tpot_s: float

    def met_by(self, sample: RequestSample) -> bool:
        """A single token has no TPOT and passes that objective."""
        ttft, tpot = sample.ttft_ns, sample.tpot_ns
        return ttft is not None and ttft <= self.ttft_s * 1e9 and (tpot is None or tpot <= self.tpot_s * 1e9)


@dataclass(frozen=True, slots=True)
class Answered:
    request: Request
    sample: RequestSample

    @property
    def refused(self) -> bool:
        return self.sample.status in REFUSAL_STATUSES

    @property
    def refusal_ns(self) -> int | None:
        """From the scheduled arrival to the refusal's status line."""
        headers = self.sample.headers_ns
        return headers - self.sample.origin_ns if self.refused and headers is not None else None

    def fate(self, objectives: Objectives) -> Fate:
        if self.refused:
            return Fate.REFUSED
        if not self.sample.ok:
            return Fate.FAILED
        return Fate.GOOD if objectives.met_by(self.sample) else Fate.LATE

    def row(self, objectives: Objectives) -> dict[str, object]:
        """The raw sample. Times in ns, from the scheduled arrival."""
        sample = self.sample
        return {
            "number": self.request.number,
            "due_ns": sample.origin_ns,
            "prompt_tokens": self.request.prompt_tokens,
            "max_tokens": self.request.output_tokens,
            "fate": self.fate(objectives),
            "status": sample.status,
            "reason": reason(sample),
            "lateness_ns": sample.lateness_ns,
            "refusal_ns": self.refusal_ns,
            "ttft_ns": sample.ttft_ns,
            "tpot_ns": sample.tpot_ns,
            "e2e_ns": sample.e2e_ns,
            "output_tokens": sample.output_tokens,
        }


def reason(sample: RequestSample) -> str | None:
    """What the error's body calls it, else the client's own word; None for a completed request."""
    if sample.ok:
        return None
    try:
        error = orjson.loads(sample.body)["error"]
        named = next((error[name] for name in ("reason", "code", "type") if isinstance(error.get(name), str)), None)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        named = None
    return named or sample.error


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU nanoseconds over `wall_ns`: of the server's API process, of all its processes, of this client, of the rest
    of the machine. An engine whose threads wait for each other suffers out of proportion from that rest."""

    wall_ns: int
    api_ns: int
    tree_ns: int
    client_ns: int
    others_ns: int


@dataclass(frozen=True)
class Point:
    """`factor` is the offered load as a multiple of capacity, `rate` in requests/s, over `window_s` seconds."""

    arm: str
    round: int
    factor: float
    rate: float
    window_s: float
    objectives: Objectives
    answered: Sequence[Answered]
    cost: Cost

    def with_fate(self, fate: Fate) -> list[Answered]:
        return [one for one in self.answered if one.fate(self.objectives) is fate]

    @property
    def goodput(self) -> float:
        """Requests/s that met both objectives."""
        return len(self.with_fate(Fate.GOOD)) / self.window_s

    @property
    def token_goodput(self) -> float:
        """Output tokens/s of those requests."""
        return sum(one.sample.output_tokens or 0 for one in self.with_fate(Fate.GOOD)) / self.window_s

    @property
    def lateness_p99_ns(self) -> float:
        late = sorted(one.sample.lateness_ns or 0 for one in self.answered)
        return percentile(late, 99) if late else 0.0

    @property
    def valid(self) -> bool:
        """False when the generator was too late for the latencies to be the server's."""
        return self.lateness_p99_ns <= LATENESS_SHARE * self.objectives.ttft_s * 1e9

    def refused_shares(self) -> list[float]:
        return refused_shares(self.answered)

    def figures(self) -> dict[str, object]:
        done = [one.sample for one in self.answered if one.sample.ok]
        refusals = self.with_fate(Fate.REFUSED)
        return {
            "scheduled": len(self.answered),
            "fates": {fate: len(self.with_fate(fate)) for fate in Fate},
            "goodput_requests_per_s": self.goodput,
            "goodput_output_tokens_per_s": self.token_goodput,
            "ttft_ms": _distribution(sample.ttft_ns for sample in done),
            "tpot_ms": _distribution(sample.tpot_ns for sample in done),
            "refusal_ms": _distribution(one.refusal_ns for one in refusals),
            "refusals": _counts(refusals),
            "failures": _counts(self.with_fate(Fate.FAILED)),
            "refused_shares_by_length_quartile": self.refused_shares(),
            "lateness_p99_ms": self.lateness_p99_ns / 1e6,
            "client_cpu_share": self.cost.client_ns / self.cost.wall_ns,
            "others_cpu_share": self.cost.others_ns / self.cost.wall_ns,
            "valid": self.valid,
        }

    def as_dict(self) -> dict[str, object]:
        return {
            "arm": self.arm,
            "round": self.round,
            "factor": self.factor,
            "rate": self.rate,
            "window_s": self.window_s,
            "figures": self.figures(),
            "cost": asdict(self.cost),
            "requests": [one.row(self.objectives) for one in self.answered],
        }


def quarters(answered: Sequence[Answered]) -> list[list[Answered]]:
    """By prompt and output tokens asked for, shortest first; empty ones are left out."""
    ordered = sorted(answered, key=lambda one: (one.request.tokens, one.request.number))
    cuts = [len(ordered) * part // 4 for part in range(5)]
    return [ordered[start:end] for start, end in pairwise(cuts) if start < end]


def refused_shares(answered: Sequence[Answered]) -> list[float]:
    """Share of refused requests in each quarter by length."""
    return [sum(one.refused for one in quarter) / len(quarter) for quarter in quarters(answered)]


def _counts(answered: Iterable[Answered]) -> dict[str, int]:
    return dict(Counter(f"{one.sample.status or '-'} {reason(one.sample)}" for one in answered))


def _distribution(values: Iterable[float | None]) -> dict[str, object] | None:
    found = Distribution.of_ns(value for value in values if value is not None)
    return None if found is None else asdict(found)
