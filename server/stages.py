"""The stages of a request and the ledger that times them.

`StageClock` keeps one cursor per HTTP request. Each nanosecond between the first byte in and the last byte out goes to
the stage that *ends* it, so nothing counts twice; what no stage claims is `unattributed` and is published.
All stamps are `time.monotonic_ns()`: CLOCK_MONOTONIC, comparable across the processes of one host.
"""

from enum import IntEnum
from time import monotonic_ns


class Stage(IntEnum):
    """One name per stage, used in code, metrics, response timings and bench alike; the value indexes a ledger."""

    RECEIVE = 0  # first byte of the request seen → body complete
    VALIDATE = 1  # → parsed, limits checked
    TOKENIZE = 2  # → chat template rendered, prompt token ids ready
    ADMIT = 3  # → permit granted: the wait in our queue
    QUEUE = 4  # → first scheduled: the wait in the engine's queue
    PREFILL = 5  # → first token sampled
    DECODE = 6  # the part of waiting for the next token that the request really waited
    SAMPLE = 7  # inside prefill and decode; a sub-stage, never added to the sum (`StageClock.sampled`)
    TRANSFER = 8  # engine's stamp → step received in this process
    DISPATCH = 9  # step received → this stream's turn
    DETOKENIZE = 10  # token ids → text
    POSTPROCESS = 11  # stop strings; what is buffered there stays there
    ENCODE = 12  # → finished bytes
    SEND = 13  # handing bytes to the transport, and all the time the stream is parked

    @property
    def label(self) -> str:
        return self.name.lower()


TOKEN_STAGES = (
    Stage.DECODE,
    Stage.TRANSFER,
    Stage.DISPATCH,
    Stage.DETOKENIZE,
    Stage.POSTPROCESS,
    Stage.ENCODE,
    Stage.SEND,
)
"""Stages timed once per delta, in the order a delta meets them."""

LEDGER_STAGES = tuple(stage for stage in Stage if stage is not Stage.SAMPLE)
"""Stages that add up to the request's wall time."""


class StageClock:
    """The ledger of one HTTP request: `ns[stage]`, and the cursor up to which time is accounted for.

    `sampled` is the time, in ns, that the engine sampled in the steps that gave this request a token: of it, the first
    such step's lies inside `prefill`. Whole steps, whoever else was in the batch, so they may exceed what was waited.
    """

    __slots__ = ("cursor", "ns", "sampled", "sampled_first", "started")

    def __init__(self, started: int | None = None) -> None:
        self.started = monotonic_ns() if started is None else started
        self.cursor = self.started
        self.ns = [0] * len(Stage)
        self.sampled = 0
        self.sampled_first = 0

    def advance(self, stage: Stage, until: int) -> None:
        """Give the time from the cursor to `until` to `stage`; nothing when `until` has already passed."""
        spent = until - self.cursor
        if spent > 0:
            self.ns[stage] += spent
            self.cursor = until

    def lap(self, stage: Stage) -> None:
        """End `stage` now."""
        self.advance(stage, monotonic_ns())

    def skip(self, until: int) -> None:
        """Move the cursor without giving the time to a stage: it stays unattributed."""
        self.cursor = max(self.cursor, until)

    def here(self) -> int:
        """The stamp up to which time is accounted for."""
        return self.cursor

    def unattributed(self, until: int) -> int:
        """Time of [started, until] in ns that no stage has claimed."""
        return until - self.started - sum(self.ns)


class NullClock(StageClock):
    """The ledger switched off (`telemetry.ledger: off`): the same calls, nothing kept."""

    __slots__ = ()

    def advance(self, stage: Stage, until: int) -> None:
        pass

    def lap(self, stage: Stage) -> None:
        pass

    def here(self) -> int:
        return monotonic_ns()

    def unattributed(self, until: int) -> int:
        return 0
