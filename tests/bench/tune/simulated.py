"""A server in virtual time whose places depend on its settings, and a search on it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.arms import ArmError
from bench.run.meter import Progress
from bench.run.result import Result
from bench.run.spec import Spec
from bench.search.capacity import Search, wanted
from bench.tune.search import Plan, Record, Tuner
from bench.tune.space import Changes, Space, key, space
from tests.bench.search.simulated import Queue, Server
from tests.support.results import SPEC

START_S = 20.0
WANTED = wanted("ttft_p90<1s")
SEQUENCES = "engine.args.max_num_seqs"


def small_space(settings: Mapping[str, Any]) -> Space:
    return space(settings, "cpu", [0, 1], WANTED)


def plan(budget_s: float = 3 * 3600.0, seed: int = 1) -> Plan:
    edge = Search(
        SPEC, WANTED, seconds=20.0, requests=60, width=0.15, repeat=1, rest_s=0.0, longest=60.0, lowest_share=1.0
    )
    return Plan(edge, budget_s, seed, least_s=0.0)


@dataclass
class Stand:
    """`places` says of changes how many requests are served at a time; 0: the server doesn't come up.

    No two runs are alike, whatever their seeds. `interrupt_at` is the number of the run that Ctrl-C meets.
    """

    places: Callable[[Changes], int]
    interrupt_at: int | None = None
    seconds: float = 0.0
    put_on: list[tuple[Changes, Spec]] = field(default_factory=list)

    async def put(self, changes: Changes, spec: Spec, on_progress: Callable[[Progress], None]) -> Result:
        if self.interrupt_at == len(self.put_on):
            raise asyncio.CancelledError
        if not self.put_on or key(self.put_on[-1][0]) != key(changes):
            self.seconds += START_S
        self.put_on.append((changes, spec))
        if not (places := self.places(changes)):
            raise ArmError("no such option")
        noisy = replace(spec, seed=1000 * spec.seed + len(self.put_on))
        result = await Server(Queue(places, 0.5)).load(noisy, on_progress)
        self.seconds += result.wall_ns / 1e9 * (1 + spec.warmup / spec.requests)
        return result


def tuner(stand: Stand, asked: Plan, settings: Mapping[str, Any], lines: list[str] | None = None) -> Tuner:
    return Tuner(
        asked, small_space(settings), stand.put, ([] if lines is None else lines).append, lambda: stand.seconds
    )


def searched(stand: Stand, asked: Plan, settings: Mapping[str, Any] | None = None) -> Record:
    return asyncio.run(tuner(stand, asked, {} if settings is None else settings).run())
