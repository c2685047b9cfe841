"""Where requests spent their time, by the server's own account of each: ms by stage, `unattributed` with them.

`sample` lies inside prefill and decode, and is left out. Requests that brought no stage times count for nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from bench.run.result import Result
from bench.sample import RequestSample
from bench.stages import STAGES

SUBSTAGE = "sample"
UNATTRIBUTED = "unattributed"
ADDED = (*(stage for stage in STAGES if stage != SUBSTAGE), UNATTRIBUTED)

Stages = Mapping[str, float]


def stages_ms(sample: RequestSample) -> Stages:
    if sample.timings is None:
        return {}
    found = {**sample.timings.get("stages_ms", {}), UNATTRIBUTED: sample.timings.get("unattributed_ms", 0.0)}
    return {stage: found.get(stage, 0.0) for stage in ADDED}


def together(samples: Iterable[RequestSample]) -> Stages:
    totals: dict[str, float] = {}
    for sample in samples:
        for stage, ms in stages_ms(sample).items():
            totals[stage] = totals.get(stage, 0.0) + ms
    return totals


def total(result: Result) -> Stages:
    """Of completed requests together."""
    return together(sample for sample in result.samples if sample.ok)


def mean(result: Result) -> Stages:
    """Of a completed request."""
    told = sum(sample.ok and sample.timings is not None for sample in result.samples)
    return {stage: ms / told for stage, ms in total(result).items()}


def share(spent: Stages, stages: Collection[str]) -> float:
    """Of all the time; 0 of none."""
    everything = sum(spent.values())
    return sum(spent.get(stage, 0.0) for stage in stages) / everything if everything else 0.0


def only(spent: Stages, stages: Collection[str]) -> Stages:
    return {stage: ms for stage, ms in spent.items() if stage in stages}
