"""Results of runs as tests need them: stamps in a run's own time, 0 at its start."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from bench.run.result import Result
from bench.run.spec import Closed, Spec
from bench.sample import RequestSample, StreamEvent

MS = 1_000_000
S = 1_000_000_000
SPEC = Spec("http://127.0.0.1:8000", "tiny", Closed(4), requests=4)


def completed(
    at_s: float = 0.0,
    *,
    ttft_ms: float = 100.0,
    gaps_ms: Sequence[float] = (20.0, 20.0),
    tokens: int | None = None,
    late_ms: float | None = None,
    timings: Mapping[str, Any] | None = None,
) -> RequestSample:
    """Sent at `at_s`, of a token per event unless `tokens` says else; [DONE] comes with the last event."""
    sent = round(at_s * S)
    due = None if late_ms is None else sent - round(late_ms * MS)
    first = (sent if due is None else due) + round(ttft_ms * MS)
    stamps = list(accumulate((round(gap * MS) for gap in gaps_ms), initial=first))
    events = [StreamEvent(stamp, 0, True, None) for stamp in stamps]
    return RequestSample(
        sent_ns=sent,
        scheduled_ns=due,
        headers_ns=first,
        done_ns=stamps[-1],
        status=200,
        output_tokens=len(events) if tokens is None else tokens,
        timings=None if timings is None else dict(timings),
        events=events,
    )


def refused(at_s: float = 0.0, detail: str = "too busy") -> RequestSample:
    sent = round(at_s * S)
    return RequestSample(sent_ns=sent, headers_ns=sent + MS, status=503, error="http 503", detail=detail)


def failed(at_s: float = 0.0, error: str = "cut") -> RequestSample:
    return RequestSample(sent_ns=round(at_s * S), error=error, detail="the connection closed")


def timings(sample_ms: tuple[float, float] = (0.0, 0.0), unattributed_ms: float = 0.0, **stages_ms: float) -> Any:
    """A server's own account of a request; `sample_ms` is inside prefill and inside decode."""
    return {
        "stages_ms": stages_ms,
        "substages_ms": {"prefill": {"sample": sample_ms[0]}, "decode": {"sample": sample_ms[1]}},
        "unattributed_ms": unattributed_ms,
    }


def result(samples: Sequence[RequestSample], *, spec: Spec = SPEC, wall_s: float = 10.0, **more: Any) -> Result:
    return Result(spec=spec.as_dict(), samples=samples, origin_ns=0, wall_ns=round(wall_s * S), **more)
