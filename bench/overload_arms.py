"""The servers an overload run compares, all with the engine arguments and the environment of one settings file.

* `ours`: this project's server, steered by the objectives;
* `stock`: vLLM's own server;
* `stock-queue`: the same with `--max-num-queued-tokens`, sized as vLLM's documentation says: objective x
  prefill rate.
"""

import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.arms import HOST, Arm, running
from bench.client import stream_request
from bench.compare_arms import MATCHED, ArmOptions, build_arms
from bench.overload_plan import Request
from bench.overload_point import Objectives
from bench.sample import RequestSample

OURS, STOCK, STOCK_QUEUE = ARM_NAMES = ("ours", "stock", "stock-queue")
PATH = "/v1/completions"


def settings_flags(config: Path, objectives: Objectives, assignments: Sequence[str]) -> str:
    """As both `serve` and `config engine-command` take them; `assignments` win."""
    slo = (
        f"admission.slo.ttft_p99_ms={objectives.ttft_s * 1e3:g}",
        f"admission.slo.tpot_p99_ms={objectives.tpot_s * 1e3:g}",
    )
    sets = [word for each in (*slo, *assignments) for word in ("--set", each)]
    return shlex.join(["--config", str(config.resolve()), *sets])


def overload_arms(options: ArmOptions, names: Sequence[str], scratch: Path) -> dict[str, Arm]:
    """By name. `stock-queue` still lacks its limit: see `with_queue_limit`."""
    arms = {OURS: build_arms(options, [OURS], scratch)[0]} if OURS in names else {}
    if {STOCK, STOCK_QUEUE} & set(names):
        [matched] = build_arms(options, [MATCHED], scratch)
        arms |= {name: replace(matched, name=name) for name in (STOCK, STOCK_QUEUE) if name in names}
    return {name: arms[name] for name in names}


def with_queue_limit(arm: Arm, tokens: int) -> Arm:
    return replace(arm, argv=(*arm.argv, "--max-num-queued-tokens", str(tokens)))


def with_settings(arm: Arm, *assignments: str) -> Arm:
    """One of our servers with settings of its own."""
    return replace(arm, argv=(*arm.argv, *(word for each in assignments for word in ("--set", each))))


@dataclass(frozen=True)
class Station:
    """A running arm, as its clients see it. `deadline_s` bounds each request."""

    port: int
    pid: int
    model: str
    deadline_s: float
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(
        self,
        request: Request,
        scheduled_ns: int | None = None,
        *,
        max_tokens: int | None = None,
        timings: bool = False,
        sample: RequestSample | None = None,
    ) -> RequestSample:
        body = request.body(self.model, max_tokens=max_tokens, timings=timings)
        return await stream_request(
            HOST, self.port, PATH, body, self.headers, self.deadline_s, scheduled_ns=scheduled_ns, sample=sample
        )


@dataclass(frozen=True)
class Garage:
    """Starts arms one at a time, which is all that a small machine carries; their logs are left in `out`."""

    out: Path
    model: str
    ready_deadline_s: float
    stop_deadline_s: float
    request_deadline_s: float

    @asynccontextmanager
    async def start(self, arm: Arm, label: str) -> AsyncIterator[Station]:
        """Raises ArmError when the server doesn't come up."""
        log = self.out / f"{label}.log"
        async with running(
            arm, log, ready_deadline_s=self.ready_deadline_s, stop_deadline_s=self.stop_deadline_s
        ) as up:
            yield Station(up.port, up.pid, self.model, self.request_deadline_s)
