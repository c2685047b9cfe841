"""What a run of load came to: every raw sample, how it was asked, where, and the server's own series meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from bench.metrics import Summary, percentile, summarize
from bench.sample import RequestSample, StreamEvent

FORMAT = 1
LATE_SHARE = 0.05  # of the median time to first token: a generator later than this has measured itself
LATE_FLOOR_NS = 1_000_000
BUSY_SHARE = 0.9  # of a core: a client process above it has no time left to read what comes when it comes
BUSY_LEAST_NS = 1_000_000_000  # a shorter run is all beginning, and what that costs shows in its lateness


@dataclass(frozen=True)
class Result:
    """`samples` are the measured ones, in the order in which they were due or sent; stamps are monotonic ns.

    `series` has by name the server's gauges as (seconds since `origin_ns`, value). `facts` are of the machine, the
    versions and the client's own cost. `spec` is `Spec.as_dict`.
    """

    spec: Mapping[str, Any]
    samples: Sequence[RequestSample]
    origin_ns: int
    wall_ns: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @cached_property
    def summary(self) -> Summary:
        return summarize(self.samples, self.wall_ns)

    @property
    def faults(self) -> list[str]:
        """Why the figures are not the server's alone; empty for a valid run."""
        return [*self._late(), *self._busy(), *self._unjoined()]

    def _late(self) -> list[str]:
        late = sorted(sample.lateness_ns for sample in self.samples if sample.lateness_ns is not None)
        first = sorted(sample.ttft_ns for sample in self.samples if sample.ttft_ns is not None)
        if not late or not first:
            return []
        found, allowed = percentile(late, 99), max(LATE_SHARE * percentile(first, 50), LATE_FLOOR_NS)
        if found <= allowed:
            return []
        return [f"the generator was late: {found / 1e6:.1f} ms at p99, allowed {allowed / 1e6:.1f} ms"]

    def _busy(self) -> list[str]:
        busiest = max(self.facts.get("client_busy") or [0.0])
        if busiest <= BUSY_SHARE or self.wall_ns < BUSY_LEAST_NS:
            return []
        return [f"the client had too few processes: one of them used {busiest:.0%} of a core"]

    def _unjoined(self) -> list[str]:
        if not self.spec.get("include_timings"):
            return []
        done = [sample for sample in self.samples if sample.ok]
        without = sum(sample.timings is None for sample in done)
        if not without or without == len(done):  # none at all: another server, which has none to give
            return []
        return [f"{without} of {len(done)} completed requests have no stage times"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "started": self.started,
            "spec": dict(self.spec),
            "facts": dict(self.facts),
            "summary": self.summary.as_dict(),
            "faults": self.faults,
            "wall_ns": self.wall_ns,
            "series": {name: list(values) for name, values in self.series.items()},
            "requests": [_row(sample, self.origin_ns) for sample in self.samples],
        }

    def save(self, folder: Path) -> Path:
        """As `result.json` in `folder`; raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "result.json"
        path.write_bytes(orjson.dumps(self.as_dict(), option=orjson.OPT_INDENT_2, default=str))
        return path

    @classmethod
    def load(cls, path: Path) -> "Result":
        """What `save` wrote; raises OSError, and ValueError for anything else."""
        found = orjson.loads(path.read_bytes())
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{path} is no result of format {FORMAT}")
        return cls(
            spec=found["spec"],
            samples=[_sample(row) for row in found["requests"]],
            origin_ns=0,
            wall_ns=found["wall_ns"],
            facts=found["facts"],
            series={name: [(at, value) for at, value in values] for name, values in found["series"].items()},
            started=found["started"],
        )


def _row(sample: RequestSample, origin: int) -> dict[str, Any]:
    """Stamps from the run's origin on; events as [stamp, choice, generated, finish reason]."""
    return {
        "sent_ns": sample.sent_ns - origin,
        "scheduled_ns": _since(sample.scheduled_ns, origin),
        "headers_ns": _since(sample.headers_ns, origin),
        "done_ns": _since(sample.done_ns, origin),
        "status": sample.status,
        "error": sample.error,
        "detail": sample.detail,
        "prompt_tokens": sample.prompt_tokens,
        "output_tokens": sample.output_tokens,
        "timings": sample.timings,
        "events": [[event.stamp_ns - origin, *event[1:]] for event in sample.events],
    }


def _sample(row: Mapping[str, Any]) -> RequestSample:
    plain = {name: value for name, value in row.items() if name != "events"}
    return RequestSample(**plain, events=[StreamEvent(*event) for event in row["events"]])


def _since(stamp: int | None, origin: int) -> int | None:
    return None if stamp is None else stamp - origin
