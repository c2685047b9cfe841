"""Everything a run will ask for and when, before it begins; every process that shares the run makes the same plan."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.run import arrivals, prompts, traces
from bench.run.prompts import Conversation
from bench.run.spec import Closed, Open, Spec, SpecError


@dataclass(frozen=True, slots=True)
class Planned:
    """`offset_s` is when the conversation is due, None in a closed loop. The warm-up is not `measured`."""

    conversation: Conversation
    measured: bool
    offset_s: float | None = None


def plan(spec: Spec) -> list[Planned]:
    """The warm-up first. Raises SpecError."""
    check(spec)
    trace = _trace(spec)
    found = prompts.conversations(spec, trace)
    warmup = prompts.take(found, spec.warmup)
    said = [*warmup, *prompts.take(found, spec.requests)]
    offsets: Sequence[float | None] = [None] * len(said)
    if isinstance(spec.load, Open):
        offsets = arrivals.offsets(spec.load, len(said), spec.seed, trace)
    return [
        Planned(conversation, number >= len(warmup), offset)
        for number, (conversation, offset) in enumerate(zip(said, offsets, strict=True))
    ]


def check(spec: Spec) -> None:
    """Raises SpecError for numbers that make no run; what is in files is looked at by `plan`."""
    if spec.requests < 1 or spec.warmup < 0:
        raise SpecError(f"no run has {spec.requests} requests after {spec.warmup}")
    if spec.processes < 1:
        raise SpecError(f"processes must be at least 1, not {spec.processes}")
    if not spec.deadline_s > 0:
        raise SpecError(f"the deadline must be above zero, not {spec.deadline_s}")
    if isinstance(spec.load, Closed) and spec.load.concurrency < 1:
        raise SpecError(f"concurrency must be at least 1, not {spec.load.concurrency}")


def _trace(spec: Spec) -> list[traces.Recorded]:
    if not isinstance(spec.load, Open) or spec.load.shape != "trace":
        return []
    if spec.load.trace is None:
        raise SpecError("replaying a trace needs its file")
    return traces.read(spec.load.trace, spec.warmup + spec.requests)


def share(planned: Sequence[Planned], load: Closed | Open, index: int, of: int) -> list[Planned]:
    """The part of process `index` of `of`: every so many-th arrival, or the conversations of its users.

    Users are dealt to processes in turn and conversations to users, so that each process has as much per user.
    """
    if isinstance(load, Closed):
        return [one for number, one in enumerate(planned) if number % load.concurrency % of == index]
    return list(planned[index::of])


def users(load: Closed, index: int, of: int) -> int:
    """How many of the users at a time are those of process `index`."""
    return len(range(index, load.concurrency, of))
