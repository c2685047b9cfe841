"""Whatever comes, goes, is cancelled, times out or is let go of, and in whatever order: every account ends at zero."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.admission.admission import Admission
from server.admission.permits import Permit
from server.admission.ticket import Ticket
from server.config import AdmissionSettings, SloSettings
from server.errors import ClientGone, Overloaded, RequestTimeout, ServeError, ShuttingDown
from server.request import HIGH, LOW, NORMAL, GenerationRequest
from tests.server.admission.tickets import request_of
from tests.support.waiting import DEADLINE_S

SLOTS = 3
STEP = 40  # tokens; the window is of two
LARGEST = 100


class Client:
    """One request's way through admission into an engine that lets go of sequences when it is told to."""

    def __init__(self, admission: Admission, request: GenerationRequest, timeout: float) -> None:
        self.inside = 0
        self.task: asyncio.Task[str] | None = None
        self._admission = admission
        self._request = request
        self._timeout = timeout
        self._permit: Permit | None = None
        self._ticket: Ticket | None = None
        self._may_end = asyncio.Event()

    def start(self) -> None:
        self.task = asyncio.create_task(self._serve())

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def withdraw(self) -> None:
        if self._ticket is not None:
            self._ticket.withdraw()

    def first_token(self) -> None:
        if self._permit is not None and self.inside:
            self._admission.prefilled(self._permit)

    def release(self) -> None:
        """The engine lets go of one sequence."""
        if self._permit is not None and self.inside:
            self.inside -= 1
            self._permit.released()

    def end(self) -> None:
        self._may_end.set()

    async def _serve(self) -> str:
        try:
            self._ticket = self._admission.apply(self._request, self._timeout)
            async with self._admission.permit(self._ticket) as self._permit:
                for _ in range(self._request.n):
                    self._permit.submitted()
                    self.inside += 1
                await self._may_end.wait()
                self._admission.forecast.answered(8, 8)
                self._admission.took_per_token(0.01)
        except ServeError as error:
            return str(error.figures.get("reason", error.code))
        return "served"


class Storm:
    def __init__(self, **settings: Any) -> None:
        chosen = AdmissionSettings(max_batch_size=SLOTS, max_queue_size=4, **settings)
        self.admission = Admission(chosen, max_wait=0.004)
        self.admission.open(max_num_seqs=SLOTS, max_batch_tokens=STEP)
        self.clients: list[Client] = []

    def send(self, caller: str, rank: int, prompt_tokens: int, n: int, timeout: float) -> None:
        request = request_of(caller, prompt_tokens, rank=rank, n=n)
        self.clients.append(Client(self.admission, request, timeout))
        self.clients[-1].start()

    async def act(self, action: Any) -> None:
        match action:
            case "turn":
                await asyncio.sleep(0)
            case "wait":
                await asyncio.sleep(0.003)
            case "close":
                self.admission.close()
            case (str() as deed, int(place)):
                if place < len(self.clients):
                    getattr(self.clients[place], deed)()
            case arrival:
                self.send(*arrival)

    async def settle(self) -> list[str | BaseException]:
        """Let everything end; what each client was told."""
        async with asyncio.timeout(DEADLINE_S):
            while any(client.task is not None and not client.task.done() for client in self.clients):
                for client in self.clients:
                    client.end()
                    client.release()
                await asyncio.sleep(0)
        return await asyncio.gather(*(client.task for client in self.clients if client.task), return_exceptions=True)

    def check(self) -> None:
        admission = self.admission
        assert 0 <= admission.slots.in_use <= SLOTS
        assert len(admission.queue) <= 4
        assert 0 <= admission._prefills.tokens < 2 * 2 * STEP + LARGEST  # four steps for who has nothing there yet
        assert sum(permit.prompt_tokens for permit in admission._prefills._open) == admission._prefills.tokens

    def check_over(self) -> None:
        admission = self.admission
        assert (admission.slots.in_use, len(admission.queue), admission._prefills.tokens) == (0, 0, 0)
        assert not admission._prefills
        assert admission._alarm is None


ARRIVALS = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from([HIGH, NORMAL, LOW]),
    st.integers(1, LARGEST),
    st.integers(1, SLOTS + 2),
    st.sampled_from([0.002, 0.004, 60.0]),
)
DEEDS = st.tuples(st.sampled_from(["cancel", "withdraw", "first_token", "release", "end"]), st.integers(0, 15))
ACTIONS = st.lists(ARRIVALS | ARRIVALS | DEEDS | DEEDS | st.sampled_from(["turn", "turn", "wait"]), max_size=50)
KINDS: list[dict[str, Any]] = [
    {},
    {"max_queue_delay": 0.002, "preferred_batch_size": (3,)},
    {"slo": SloSettings(ttft_p99_ms=6, tpot_p99_ms=5)},
]


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "held", "steered"])
@settings(max_examples=150)
@given(actions=ACTIONS, close_at=st.none() | st.integers(0, 60))
async def test_no_interleaving_leaks_a_slot_a_place_or_a_token(
    kind: dict[str, Any], actions: list[Any], close_at: int | None
) -> None:
    storm = Storm(**kind)
    for number, action in enumerate(actions):
        await storm.act("close" if number == close_at else action)
        storm.check()
    told = await storm.settle()
    storm.check_over()
    assert all(isinstance(each, str | asyncio.CancelledError) for each in told), told
    refusals = Counter(each for each in told if each in ("predicted_wait", "deadline", "queue_full", "max_wait"))
    assert not refusals - storm.admission.refusals
    if not any(isinstance(action, tuple) and action[0] == "cancel" for action in actions):
        assert refusals == storm.admission.refusals


class Moment:
    """One slot that is in use, and a request that waits for it: both end at moments that meet."""

    def __init__(self) -> None:
        self.admission = Admission(AdmissionSettings(max_batch_size=1), max_wait=0.005)
        self.admission.open(max_num_seqs=1, max_batch_tokens=STEP)
        self.running = self.admission.apply(request_of(), 60)
        self.waiting = asyncio.create_task(self._wait())

    async def _wait(self) -> type[BaseException] | None:
        try:
            async with self.admission.permit(self.admission.apply(request_of("b"), 60)):
                return None
        except ServeError as error:
            return type(error)

    def free(self) -> None:
        self.running.granted.result().release_all()

    def withdraw(self) -> None:
        for ticket in self.admission.queue.waiting:
            ticket.withdraw()


@pytest.mark.parametrize("other", ["cancel", "withdraw", "close", "timeout"])
@pytest.mark.parametrize("freed_first", [True, False])
async def test_a_grant_that_meets_the_end_of_its_wait_is_used_or_given_back(other: str, freed_first: bool) -> None:
    for turns_before in range(4):
        moment = Moment()
        ends: dict[str, Callable[[], object]] = {
            "cancel": moment.waiting.cancel,
            "withdraw": moment.withdraw,
            "close": moment.admission.close,
            "timeout": lambda: None,
        }
        for _ in range(turns_before):
            await asyncio.sleep(0)
        if other == "timeout":
            await asyncio.sleep(0.005)
        for deed in (moment.free, ends[other]) if freed_first else (ends[other], moment.free):
            deed()
        (told,) = await asyncio.gather(moment.waiting, return_exceptions=True)
        assert told in (None, Overloaded, ClientGone, ShuttingDown, RequestTimeout) or isinstance(
            told, asyncio.CancelledError
        )
        assert (moment.admission.slots.in_use, len(moment.admission.queue)) == (0, 0)
        assert moment.admission._prefills.tokens == 0
