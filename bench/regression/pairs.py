"""Two servers in turn: A B B A in every round, so that what drifts on the machine meets both alike."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from bench.procfs import alive, tree_cpu
from bench.run.result import Result
from bench.run.spec import Spec, SpecError

Run = Callable[[Spec], Awaitable[Result]]


@dataclass(frozen=True)
class Side:
    """A server and the load it gets. `pid` is that of its first process, where it is known and on this machine."""

    name: str
    spec: Spec
    pid: int | None = None


@dataclass(frozen=True)
class Visit:
    """One run of load on one server. `cpu_ns` is of the server's processes, warm-up included."""

    arm: str
    round: int
    position: int
    result: Result
    cpu_ns: int | None = None


def visiting_order(sides: Sequence[Side], rounds: int) -> list[tuple[int, int, Side]]:
    """(round, position, side): there and back in every round."""
    return [(turn, place, side) for turn in range(rounds) for place, side in enumerate([*sides, *reversed(sides)])]


async def in_turn(
    sides: Sequence[Side], rounds: int, run: Run, on_visit: Callable[[Visit], None] = lambda _: None
) -> list[Visit]:
    """Visits the sides; raises what `run` raises.

    The way there has the same prompts and arrivals for both, the way back others: a server that remembers prompts
    (prefix caching) would answer them faster the second time.
    """
    visits: list[Visit] = []
    for turn, place, side in visiting_order(sides, rounds):
        back = place >= len(sides)
        visits.append(await visit(side, turn, place, 2 * turn + back, run))
        on_visit(visits[-1])
    return visits


async def again(side: Side, times: int, run: Run, on_visit: Callable[[Visit], None] = lambda _: None) -> list[Visit]:
    """One server by itself, as visits of one round, each with prompts of its own."""
    visits: list[Visit] = []
    for place in range(times):
        visits.append(await visit(side, 0, place, place, run))
        on_visit(visits[-1])
    return visits


async def visit(side: Side, turn: int, place: int, variation: int, run: Run) -> Visit:
    """Other prompts and arrivals for each `variation`. Raises what `run` raises, and SpecError without the process."""
    before = _cpu_ns(side)
    result = await run(replace(side.spec, seed=side.spec.seed + variation))
    return Visit(side.name, turn, place, result, None if side.pid is None else _cpu_ns(side) - before)


def _cpu_ns(side: Side) -> int:
    if side.pid is None:
        return 0
    if not alive(side.pid):
        raise SpecError(f"{side.name}: there is no process {side.pid}")
    return tree_cpu(side.pid).run_ns
