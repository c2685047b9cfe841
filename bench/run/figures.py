"""The figures of a run as labelled text, for the terminal and the page alike."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.metrics import PERCENTILES, Distribution
from bench.run.objectives import refused
from bench.run.result import Result
from bench.search.diagnosis import CLIENT, diagnose

QUANTILES = (*PERCENTILES, "mean")
NONE = "-"


def headline(result: Result) -> list[tuple[str, str]]:
    """Counts and rates, each with its unit."""
    summary = result.summary
    turned_away = sum(refused(sample) for sample in result.samples)
    cost = result.facts.get("client_cpu_us_per_event")
    return [
        ("requests", f"{summary.requests:,}"),
        ("completed", f"{summary.completed:,}"),
        ("refused", f"{turned_away:,}"),
        ("failed", f"{summary.requests - summary.completed - turned_away:,}"),
        ("wall time", f"{summary.wall_s:.1f} s"),
        ("output tokens/s", number(summary.output_tokens_per_s)),
        ("requests/s", number(summary.requests_per_s)),
        ("tokens/event", NONE if summary.tokens_per_event is None else number(summary.tokens_per_event)),
        ("client CPU", NONE if cost is None else f"{number(cost)} µs/event"),
    ]


def latencies(result: Result) -> list[tuple[str, list[str]]]:
    """Milliseconds by QUANTILES, then the number of raw samples behind them."""
    summary = result.summary
    rows = (
        ("TTFT", summary.ttft_ms),
        ("TPOT", summary.tpot_ms),
        ("event gap", summary.event_gap_ms),
        ("E2E", summary.e2e_ms),
        ("generator late", summary.lateness_ms),
    )
    return [(label, _cells(found)) for label, found in rows if found is not None]


def _cells(found: Distribution) -> list[str]:
    values = [*(found.percentiles[name] for name in PERCENTILES), found.mean]
    return [*map(number, values), f"{found.count:,}"]


def unanswered(result: Result) -> list[tuple[str, int, str]]:
    """Refusals and failures by reason: how many, and one server's or client's own words for it."""
    samples = [sample for sample in result.samples if sample.error is not None]
    counts = Counter((refused(sample), sample.error or "") for sample in samples)
    details = {sample.error: sample.detail for sample in reversed(samples)}
    return [
        (f"{'refused' if away else 'failed'}: {reason}", count, details[reason])
        for (away, reason), count in counts.most_common()
    ]


def faults(result: Result) -> list[str]:
    """Why the figures can't be trusted, or that there are none."""
    return [*result.faults, *([] if result.summary.completed else ["no request was completed"])]


def remarks(result: Result) -> list[str]:
    """What the figures are a sign of, with the stage where it can be told."""
    return [finding.text for finding in diagnose(result) if finding.stage != CLIENT]


def load(spec: Mapping[str, Any]) -> str:
    """How requests came, in words; `spec` as in `Result.spec`."""
    asked = spec["load"]
    if asked["kind"] == "closed":
        return f"{asked['concurrency']} at a time"
    rate = f"{asked['rate']:g} requests/s"
    match asked["shape"]:
        case "trace":
            return f"trace {Path(asked['trace']).name}, {asked['speed']:g} times as fast"
        case "ramp":
            return f"ramp from {rate} to {asked['rate_end']:g} requests/s"
        case "gamma":
            return f"gamma arrivals at {rate}, burstiness {asked['burstiness']:g}"
        case shape:
            return f"{shape} arrivals at {rate}"


def joined(result: Result) -> tuple[int, int]:
    """How many completed requests have stage times of their own, and how many there are."""
    done = [sample for sample in result.samples if sample.ok]
    return sum(sample.timings is not None for sample in done), len(done)


def settings(found: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names and text, without those that are not set."""
    return list(_settings(found, prefix))


def _settings(found: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{prefix}{name}", ", ".join(map(str, value))
        elif value is not None:
            yield f"{prefix}{name}", str(value)


def number(value: float) -> str:
    """Three or four figures that matter, never an exponent."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
