"""The proof of the ledger: a delay planted in one stage shows there, in full, and nowhere else.

Other processes of a shared machine can only add time, so each figure is the least of several runs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import wraps
from time import monotonic_ns
from typing import Any

import pytest

from server.admission.admission import Admission
from server.api import chat as chat_api
from server.engine.tokenizer import FolderTokenizer
from server.ingress.protocol import Connection
from server.stages import LEDGER_STAGES
from server.streaming.choice import Choice
from server.streaming.stream import Stream
from tests.support.engines import FakeEngine, FakeSequence
from tests.support.live import Client, Live, listening, request_bytes
from tests.support.site import CHAT, chat
from tests.support.waiting import until

DELAY_S = 0.02
RUNS = 5
MOST_RUNS = 60  # on a machine that gives us no peace
ELSEWHERE_MS = 1.0

Figures = dict[str, float]

INSIDE: dict[str, tuple[Any, str]] = {
    "validate": (chat_api, "check_model"),
    "tokenize": (FolderTokenizer, "encode"),
    "admit": (Admission, "apply"),
    "detokenize": (Choice, "detokenize"),
    "postprocess": (Choice, "postprocess"),
    "encode": (Stream, "encode"),
    "send": (Connection, "try_write"),
    "dispatch": (Choice, "detokenize"),  # of a neighbour, whose turn comes first
}


class Plant:
    """One delay per run, in `stage` or nowhere; `spent_ms` is how long it really took."""

    def __init__(self, stage: str | None) -> None:
        self.stage = stage
        self.armed = False
        self.spent_ms = 0.0

    async def wait(self, stage: str) -> None:
        """The delay, where somebody else is at work."""
        if self.disarm(stage):
            begun = monotonic_ns()
            await asyncio.sleep(DELAY_S)
            self.spent_ms = (monotonic_ns() - begun) / 1e6

    def block(self, stage: str) -> None:
        """The delay, where our own code is at work."""
        if self.disarm(stage):
            begun = monotonic_ns()
            time.sleep(DELAY_S)
            self.spent_ms = (monotonic_ns() - begun) / 1e6

    def before(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        @wraps(function)
        def delayed(*args: Any, **kwargs: Any) -> Any:
            self.block(stage)
            return function(*args, **kwargs)

        return delayed

    def disarm(self, stage: str) -> bool:
        due = self.armed and stage == self.stage
        self.armed = self.armed and not due
        return due


@pytest.fixture
async def live(engine: FakeEngine) -> AsyncIterator[Live[FakeEngine]]:
    async with listening(engine) as server:
        yield server


async def run(live: Live[FakeEngine], plant: Plant, stage: str = "") -> Figures:
    """One streamed request; returns its ledger in ms. In a test of dispatch it has a neighbour."""
    neighbour = await open_neighbour(live) if stage == "dispatch" else None
    plant.armed = plant.stage is not None
    async with live.client() as client:
        request = request_bytes(CHAT, chat(stream=True))
        begun = monotonic_ns()
        client.write(request[:-20])
        await asyncio.sleep(0)
        await plant.wait("receive")
        client.write(request[-20:])
        await generate(await live.engine.sequence(len(live.engine.sequences)), neighbour, plant, client)
        await client.body()
        waited_ms = (monotonic_ns() - begun) / 1e6
    if neighbour is not None:
        neighbour.end()
    await until(lambda: live.idle)
    record = next(r for r in live.services.records.latest(2) if r["id"] == client.headers["x-request-id"])
    figures = {**record["stages_ms"], "unattributed": record["unattributed_ms"], "planted": plant.spent_ms}
    return figures | {"outside": abs(waited_ms - record["wall_ms"])}


async def open_neighbour(live: Live[FakeEngine]) -> FakeSequence:
    begun = len(live.engine.sequences)
    live.open(CHAT, chat(stream=True))
    neighbour = await live.engine.sequence(begun)
    neighbour.push(1)
    return neighbour


async def generate(sequence: FakeSequence, neighbour: FakeSequence | None, plant: Plant, client: Client) -> None:
    """The engine's part: two tokens, of which the first comes in one step with a neighbour's."""
    await plant.wait("queue")
    scheduled_ns = monotonic_ns()
    await plant.wait("prefill")
    sampled_ns = monotonic_ns()
    await plant.wait("transfer")
    received_ns = monotonic_ns()
    if neighbour is not None:
        neighbour.push(1)
    sequence.push(19556, scheduled_ns=scheduled_ns, sampled_ns=sampled_ns, received_ns=received_ns)
    await client.head()
    await client.chunk()
    await plant.wait("decode")
    sequence.push(905)
    sequence.end()


def least(runs: list[Figures]) -> Figures:
    return {name: min(run[name] for run in runs) for name in runs[0]}


async def compare(live: Live[FakeEngine], plant: Plant) -> None:
    """Runs with the plant and without, in turn, until it is clear that what it changed lies in its stage."""
    stage = plant.stage or ""
    quiet, planted = [], []
    for number in range(1, MOST_RUNS + 1):
        quiet.append(await run(live, Plant(None), stage))
        planted.append(await run(live, plant, stage))
        assert not plant.armed
        problems = misplaced(stage, quiet, planted)
        if number >= RUNS and not problems:
            return
    raise AssertionError(problems)


def misplaced(stage: str, quiet: list[Figures], planted: list[Figures]) -> Figures:
    """What speaks against the plant being in its stage, wholly and only."""
    base, least_planted = least(quiet), least(planted)
    assert least_planted[stage] >= DELAY_S * 1e3 * 0.9
    # A delay that took longer than asked for counts by what it took.
    excess = min(figures[stage] - figures["planted"] for figures in planted) - base[stage]
    elsewhere = {name: least_planted[name] - base[name] for name in base if name not in (stage, "planted")}
    problems = {name: change for name, change in elsewhere.items() if change >= ELSEWHERE_MS}
    return problems | ({stage: excess} if abs(excess) > DELAY_S * 1e3 * 0.1 else {})


@pytest.mark.parametrize("stage", [stage.label for stage in LEDGER_STAGES])
async def test_a_delay_shows_in_its_stage_and_in_no_other(
    live: Live[FakeEngine], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    plant = Plant(stage)
    if stage in INSIDE:
        owner, name = INSIDE[stage]
        monkeypatch.setattr(owner, name, plant.before(getattr(owner, name), stage))
    await compare(live, plant)


async def test_a_reader_that_stalls_shows_in_send(live: Live[FakeEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    plant = Plant("send")
    try_write = Connection.try_write

    def stalled(connection: Connection, body: bytes) -> bool:
        if plant.disarm("send"):
            flow, begun = connection._cycle.flow, monotonic_ns()

            def resume() -> None:
                plant.spent_ms = (monotonic_ns() - begun) / 1e6
                flow.resume_writing()

            flow.pause_writing()
            asyncio.get_running_loop().call_later(DELAY_S, resume)
        return try_write(connection, body)

    monkeypatch.setattr(Connection, "try_write", stalled)
    await compare(live, plant)


async def test_the_whole_is_what_the_client_waited(live: Live[FakeEngine]) -> None:
    figures = least([await run(live, Plant(None)) for _ in range(RUNS)])
    assert figures["unattributed"] < 5
    assert figures["outside"] < 5
