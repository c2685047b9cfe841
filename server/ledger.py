"""What is remembered of one request while it runs, and the meter that stamps its deltas.

`Ledger` is filled along the path and read once at the end; `Ledger.report` is the shape that callers
(`include_timings`) and `/debug/requests` see.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic_ns, time
from typing import Any, Protocol

from server.request import TokenDelta
from server.stages import LEDGER_STAGES, TOKEN_STAGES, NullClock, Stage, StageClock


class Observer(Protocol):
    """Takes one duration in ns; cheap enough for the hot path."""

    def observe(self, ns: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Meters:
    """Where per-token durations go: `stages[stage]` for TOKEN_STAGES, `gap` for the time between two events."""

    stages: Sequence[Observer]
    gap: Observer


@dataclass(slots=True)
class Ledger:
    """One HTTP request's times and counts. Durations are ns, stamps monotonic ns."""

    id: str
    clock: StageClock = field(default_factory=StageClock)
    created: float = field(default_factory=time)

    # What was asked
    endpoint: str = ""
    client_request_id: str | None = None
    streamed: bool = False
    prompt_tokens: int = 0
    choices: int = 0

    # What came out
    output_tokens: int = 0
    events: int = 0
    finish_reasons: list[str] = field(default_factory=list)
    first_event_ns: int = 0
    tpot_ns: list[float] = field(default_factory=list)
    max_gap_ns: int = 0
    max_gap_stage: Stage | None = None

    # How it ended
    status: int = 0
    error: str | None = None
    ended_ns: int = 0

    @property
    def outcome(self) -> str:
        """`ok`, or the code of the error that ended the request."""
        return self.error or "ok"

    @property
    def turned_away(self) -> bool:
        """Refused for want of capacity or by a limit, before its prompt was looked at."""
        return self.status in (429, 503) and not self.prompt_tokens

    def report(self, until: int) -> dict[str, Any]:
        """The ledger up to `until` in ms. `stages_ms` + `unattributed_ms` = `wall_ms`; `substages_ms` lie inside."""
        clock = self.clock
        wall = until - clock.started
        streamed = self.streamed and self.events > 1
        return {
            "stages_ms": {stage.label: _ms(clock.ns[stage]) for stage in LEDGER_STAGES},
            "substages_ms": {
                "prefill": {"sample": _ms(clock.sampled_first)},
                "decode": {"sample": _ms(clock.sampled - clock.sampled_first)},
            },
            "wall_ms": _ms(wall),
            "unattributed_ms": _ms(clock.unattributed(until)),
            "ttft_ms": _ms(self.first_event_ns - clock.started) if self.first_event_ns else None,
            "tpot_ms": _ms(sum(self.tpot_ns) / len(self.tpot_ns)) if self.tpot_ns else None,
            "max_gap_ms": _ms(self.max_gap_ns) if streamed else None,
            "max_gap_stage": self.max_gap_stage.label if streamed and self.max_gap_stage is not None else None,
            "output_tokens_per_s": round(self.output_tokens * 1e9 / wall, 3) if wall > 0 else None,
            "events": self.events,
        }

    def server_timing(self, until: int) -> str:
        """The stages as a `Server-Timing` header value (W3C Server Timing, durations in ms)."""
        spent = [f"{stage.label};dur={_ms(self.clock.ns[stage])}" for stage in LEDGER_STAGES if self.clock.ns[stage]]
        return ", ".join([*spent, f"total;dur={_ms(until - self.clock.started)}"])


def _ms(ns: float) -> float:
    return round(ns / 1e6, 4)


class EventTrack:
    """When one choice's events went out: gaps, and time per output token."""

    __slots__ = ("_at_last_event", "_first_ns", "_last_ns", "_ledger")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._first_ns = self._last_ns = 0
        self._at_last_event: list[int] = []

    def event(self, now: int, gap: Observer) -> None:
        """An event with generated data was handed over at `now`."""
        ledger = self._ledger
        ledger.events += 1
        if not ledger.first_event_ns:
            ledger.first_event_ns = now
        if self._last_ns:
            spent = now - self._last_ns
            gap.observe(spent)
            if spent > ledger.max_gap_ns:
                ledger.max_gap_ns = spent
                ledger.max_gap_stage = self._longest_stage()
        else:
            self._first_ns = now
        self._last_ns = now
        self._at_last_event = ledger.clock.ns.copy()

    def close(self, output_tokens: int) -> None:
        """The choice has ended: its time per output token is (last − first event) / (output tokens − 1)."""
        if self._last_ns and output_tokens > 1:
            self._ledger.tpot_ns.append((self._last_ns - self._first_ns) / (output_tokens - 1))

    def _longest_stage(self) -> Stage:
        now, then = self._ledger.clock.ns, self._at_last_event
        return max(TOKEN_STAGES, key=lambda stage: now[stage] - then[stage])


class StepMeter:
    """Stamps the stages of one stream's deltas into its clock and the process-wide meters."""

    __slots__ = ("_clock", "_mark", "_meters", "_sampled", "_scheduled", "parked")

    def __init__(self, clock: StageClock, meters: Meters) -> None:
        self._clock = clock
        self._meters = meters
        self._mark = clock.cursor  # end of our last work for this stream, or the last stamp before it
        self._scheduled = False
        self._sampled = 0  # stamp of the last step whose sampling is counted: choices share steps
        self.parked = False  # while parked all the request's time is `send`

    def arrive(self, delta: TokenDelta) -> None:
        """A delta's turn has come: the time since our last work was the engine's, the wire's or a neighbour's."""
        now = monotonic_ns()
        if not self._scheduled:
            self._first_arrival(delta)
        else:
            self._observe(Stage.DECODE, delta.sampled_ns)
        if delta.sampled_ns > self._sampled:
            self._sampled = delta.sampled_ns
            self._clock.sampled += delta.sample_ns
        self._observe(Stage.TRANSFER, delta.received_ns)
        self._observe(Stage.DISPATCH, now)

    def lap(self, stage: Stage) -> int:
        """Work of `stage` on the current delta ends now; returns the stamp."""
        now = monotonic_ns()
        self._observe(stage, now)
        return now

    def unpark(self) -> None:
        """The reader caught up: the wait was `send`."""
        self.parked = False
        self._clock.lap(Stage.SEND)
        self._mark = self._clock.cursor

    def _first_arrival(self, delta: TokenDelta) -> None:
        self._scheduled = True
        self._clock.advance(Stage.QUEUE, delta.scheduled_ns)
        self._clock.advance(Stage.PREFILL, delta.sampled_ns)
        self._clock.sampled_first = delta.sample_ns
        self._mark = self._clock.cursor

    def _observe(self, stage: Stage, until: int) -> None:
        spent = until - self._mark
        if spent > 0:
            self._mark = until
        else:
            spent = 0
        self._meters.stages[stage].observe(spent)
        self._clock.advance(Stage.SEND if self.parked else stage, until)


class NullMeter(StepMeter):
    """The meter of a ledger switched off."""

    __slots__ = ()

    def arrive(self, delta: TokenDelta) -> None:
        pass

    def lap(self, stage: Stage) -> int:
        return monotonic_ns() if stage is Stage.SEND else 0

    def unpark(self) -> None:
        self.parked = False


def step_meter(clock: StageClock, meters: Meters) -> StepMeter:
    return NullMeter(clock, meters) if isinstance(clock, NullClock) else StepMeter(clock, meters)
