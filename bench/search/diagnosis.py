"""What gives first, in words: the serving chapter's rules, each a function of one run's requests and series.

A threshold is the chapter's where it names a figure, and says so where it doesn't. What a server doesn't tell of itself
is not guessed at: without stage times and series, what its client saw is all there is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from bench.metrics import percentile
from bench.run.objectives import refused
from bench.run.result import Result
from bench.sample import RequestSample
from bench.search import spent
from bench.search.saturation import rising
from bench.stages import STAGES

QUEUEING = 5.0  # p99 over p50; chapter, 4
POST_SHARE = 0.30  # of E2E; chapter, 1
BUSY = 0.9  # of wall time; the chapter (6) says busy, and gives no figure
WAITING = 1.0  # on average; the chapter (6) says that work waits, and gives no figure
UNDERFILLED = 0.5  # of max_num_seqs; the chapter's case (7) had 6 of 32
UNATTRIBUTED_SHARE = 0.05  # of E2E; the chapter has none, the ledger's stages are to account for the rest
GREW = 1.5  # from a calm run to one past its objectives; less may be noise

BEFORE_FIRST_TOKEN = STAGES[: STAGES.index("decode")]
AFTER_FIRST_TOKEN = STAGES[STAGES.index("decode") :]
POST = ("dispatch", "detokenize", "postprocess", "encode", "send")
CLIENT = "client"

BUSY_RATIO, OCCUPANCY = "streamgauge_engine_busy_ratio", "streamgauge_batch_occupancy"
QUEUES = {
    "streamgauge_admission_queued": "admit",
    "streamgauge_engine_waiting": "queue",
    "vllm:num_requests_waiting": "queue",
}

Known = Callable[[RequestSample], float | None]
Ordered = Sequence[tuple[float, RequestSample]]


@dataclass(frozen=True, slots=True)
class Finding:
    """`stage` is one of the server's, CLIENT for the load's own fault, or None where it can't be told."""

    text: str
    stage: str | None
    evidence: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def findings(calm: Result | None, edge: Result | None, past: Result | None) -> list[Finding]:
    """Of a search: a run well within the objectives, the last one within, and the first one past them."""
    first = first_to_break(calm, past) if calm and past else None
    found = [first] if first else []
    if edge is not None:
        found += too_short(edge)
    suspect = past or edge
    return found if suspect is None else found + diagnose(suspect)


def diagnose(result: Result) -> list[Finding]:
    """What is to be said of one run; empty for one with nothing remarkable."""
    return [finding for rule in RULES for finding in rule(result)]


def late_generator(result: Result) -> Iterator[Finding]:
    """The client is the bottleneck, or hides it: no figure of the run is the server's alone."""
    for fault in result.faults:
        yield Finding(f"A run isn't valid: {fault}.", CLIENT)


def turned_away(result: Result) -> Iterator[Finding]:
    count, of = sum(map(refused, result.samples)), len(result.samples)
    if count:
        text = f"The server refused {count} of {of} requests: its own admission is what gives."
        yield Finding(text, "admit", {"refused": count, "requests": of})


def queueing(result: Result) -> Iterator[Finding]:
    """Chapter, 4: P99 at five times P50 or above is queueing or contention."""
    for name, known, stages in (("TTFT", _ttft_ms, BEFORE_FIRST_TOKEN), ("TPOT", _tpot_ms, AFTER_FIRST_TOKEN)):
        ordered = _ordered(result, known)
        p50, p99 = _percentiles(ordered, 50, 99) if ordered else (0.0, 0.0)
        if not p50 or p99 < QUEUEING * p50:
            continue
        text = f"{name} p99 is {p99 / p50:.1f} times its p50, a sign of queueing or contention"
        evidence = {"p50_ms": p50, "p99_ms": p99}
        stage, usual, slow = _grown(ordered, stages)
        if stage is None:
            yield Finding(f"{text}.", None, evidence)
        else:
            text += f": {stage} is {usual:.0%} of that time for the median requests, and {slow:.0%} for the slowest."
            yield Finding(text, stage, evidence | {"share_of_median": usual, "share_of_slowest": slow})


def overload(result: Result) -> Iterator[Finding]:
    """Chapter, 6: a busy device with work that waits for it has too much of it."""
    busy, (stage, waiting) = _mean(result, BUSY_RATIO), _longest_queue(result)
    if busy is not None and busy >= BUSY and waiting >= WAITING:
        text = f"The engine executed {busy:.0%} of the time, and {waiting:.1f} waited in {stage}: it is overloaded."
        yield Finding(text, stage, {"busy": busy, "waiting": waiting})


def underfilled(result: Result) -> Iterator[Finding]:
    """Chapter, 6 and 7: small batches while work waits are the policy's fault, not the device's."""
    filled, (stage, waiting) = _mean(result, OCCUPANCY), _longest_queue(result)
    if filled is not None and filled < UNDERFILLED and waiting >= WAITING:
        text = f"Batches were {filled:.0%} full, and {waiting:.1f} waited in {stage}: what lets them in is too timid."
        yield Finding(text, stage, {"occupancy": filled, "waiting": waiting})


def post_processing(result: Result) -> Iterator[Finding]:
    """Chapter, 1: what comes after the model can take 30 % of the time, and is usually ignored."""
    total = spent.total(result)
    share = spent.share(total, POST)
    if share > POST_SHARE:
        worst = max(POST, key=lambda stage: total[stage])
        text = f"{share:.0%} of all time went to what comes after the model, most of it to {worst}."
        yield Finding(text, worst, {stage: spent.share(total, [stage]) for stage in POST})


def unaccounted(result: Result) -> Iterator[Finding]:
    share = spent.share(spent.total(result), [spent.UNATTRIBUTED])
    if share > UNATTRIBUTED_SHARE:
        yield Finding(f"{share:.0%} of all time belongs to no stage.", spent.UNATTRIBUTED, {"share": share})


RULES: Sequence[Callable[[Result], Iterator[Finding]]] = (
    late_generator,
    turned_away,
    queueing,
    overload,
    underfilled,
    post_processing,
    unaccounted,
)


def too_short(result: Result) -> Iterator[Finding]:
    """A run within its objectives that had not settled: a longer one may not be within them."""
    if rising(result):
        text = "Runs within the objectives ended while work still piled up: longer ones would show a lower capacity."
        yield Finding(text, CLIENT, {"wall_s": result.wall_ns / 1e9})


def first_to_break(calm: Result, past: Result) -> Finding | None:
    """What grew most from a calm run to one past its objectives; None where nothing grew."""
    before, after = spent.mean(calm), spent.mean(past)
    if not before or not after:
        return _from_outside(calm, past)
    stage = max(after, key=lambda stage: after[stage] - before[stage])
    if after[stage] < GREW * before[stage] or not after[stage]:
        return None
    text = f"{stage} breaks first: from {before[stage]:.1f} ms of a request to {after[stage]:.1f} ms on average."
    return Finding(text, stage, {"calm_ms": before[stage], "past_ms": after[stage]})


def _from_outside(calm: Result, past: Result) -> Finding | None:
    """Without stage times: the first token waits for a place and its prefill, each other one for a step."""
    ttft, tpot = (_growth(calm, past, known) for known in (_ttft_ms, _tpot_ms))
    if max(ttft, tpot) < GREW:
        return None
    evidence = {"ttft_p99_growth": ttft, "tpot_p99_growth": tpot}
    if ttft >= tpot:
        text = f"The wait for the first token breaks first (p99 is {ttft:.1f} times as long): requests wait to begin."
    else:
        text = f"The time per token breaks first (p99 is {tpot:.1f} times as long): steps take longer."
    return Finding(f"{text} The server gave no stage times to tell more.", None, evidence)


def _growth(calm: Result, past: Result, known: Known) -> float:
    before, after = _ordered(calm, known), _ordered(past, known)
    if not before or not after:
        return 0.0
    (low,), (high,) = _percentiles(before, 99), _percentiles(after, 99)
    return high / low if low else 0.0


def _ordered(result: Result, known: Known) -> Ordered:
    """Completed requests by the latency, in ms; those without are left out."""
    found = [(known(sample), sample) for sample in result.samples if sample.ok]
    return sorted(((value, sample) for value, sample in found if value is not None), key=lambda pair: pair[0])


def _percentiles(ordered: Ordered, *percents: float) -> list[float]:
    values = [value for value, _ in ordered]
    return [percentile(values, percent) for percent in percents]


def _grown(ordered: Ordered, stages: Sequence[str]) -> tuple[str | None, float, float]:
    """The stage whose share grew most, from the fifth of requests around the median to the slowest hundredth."""
    samples, count = [sample for _, sample in ordered], len(ordered)
    usual = spent.only(spent.together(samples[2 * count // 5 : 3 * count // 5 + 1]), stages)
    slow = spent.only(spent.together(samples[-max(1, count // 100) :]), stages)
    shares = {stage: (spent.share(usual, [stage]), spent.share(slow, [stage])) for stage in slow}
    if not any(slow.values()):
        return None, 0.0, 0.0
    stage = max(shares, key=lambda stage: shares[stage][1] - shares[stage][0])
    return stage, *shares[stage]


def _mean(result: Result, name: str) -> float | None:
    values = [value for _, value in result.series.get(name, ())]
    return sum(values) / len(values) if values else None


def _longest_queue(result: Result) -> tuple[str, float]:
    """The stage in which most waited on average, and how many; none where the server doesn't count them."""
    found = [(_mean(result, name), stage) for name, stage in QUEUES.items()]
    waiting, stage = max(((mean, stage) for mean, stage in found if mean is not None), default=(0.0, ""))
    return stage, waiting


def _ttft_ms(sample: RequestSample) -> float | None:
    return None if sample.ttft_ns is None else sample.ttft_ns / 1e6


def _tpot_ms(sample: RequestSample) -> float | None:
    return None if sample.tpot_ns is None else sample.tpot_ns / 1e6
