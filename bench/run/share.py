"""One process's part of a run: sends what is planned when it is due, and keeps the samples."""

import asyncio
import gc
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.client import seconds_until, sleep_until, stream_request
from bench.run.address import Address
from bench.run.dialects import DIALECTS, hopeless
from bench.run.meter import Meter, Progress
from bench.run.plan import Planned, plan, share, users
from bench.run.prompt_files import Message
from bench.run.prompts import Conversation
from bench.run.spec import Closed, Spec, SpecError
from bench.sample import RequestSample

# So long before its time a request gets its connection: a distant server's round trip is not the generator's lateness.
CONNECT_AHEAD_NS = 250_000_000


@dataclass(slots=True)
class Outcome:
    """`unsent` are turns of conversations that an earlier failure had ended. `cpu_ns` has one entry per process.

    `events` are those of all requests that the CPU time went to, the warm-up of an open loop included.
    """

    samples: list[RequestSample] = field(default_factory=list)
    unsent: int = 0
    events: int = 0
    cpu_ns: list[int] = field(default_factory=list)
    ended_ns: int = 0


class Share:
    """Process `index` of `of`. `prepare` comes before `run`; exceptions of both may come in groups."""

    def __init__(self, spec: Spec, address: Address, index: int = 0, of: int = 1) -> None:
        # What is asked
        self._spec = spec
        self._address = address
        self._dialect = DIALECTS[spec.endpoint]
        self._part = (index, of)
        self._planned: list[Planned] = []

        # What came of it
        self._outcome = Outcome()
        self._answered = False
        self._meter = Meter(0)
        self._origin_ns = time.monotonic_ns()

    async def prepare(self) -> None:
        """Makes the plan; in a closed loop the warm-up is over when it returns. Raises SpecError."""
        allow_many_connections()
        self._planned = share(plan(self._spec), self._spec.load, *self._part)
        measured = [one for one in self._planned if one.measured]
        if isinstance(self._spec.load, Closed):
            await self._closed_loop(self._spec.load, [one for one in self._planned if not one.measured])
            self._planned = measured
        self._meter = Meter(sum(len(one.conversation.turns) for one in measured))

    async def run(self, origin_ns: int) -> Outcome:
        """The measured part, from `origin_ns` on (CLOCK_MONOTONIC). Raises SpecError where no request can succeed."""
        self._origin_ns = origin_ns
        self._outcome = Outcome()
        with _without_collection():
            cpu_ns = time.thread_time_ns()
            if isinstance(self._spec.load, Closed):
                await sleep_until(origin_ns)
                await self._closed_loop(self._spec.load, self._planned)
            else:
                await self._open_loop(origin_ns)
        self._outcome.ended_ns = time.monotonic_ns()
        self._outcome.cpu_ns = [time.thread_time_ns() - cpu_ns]
        return self._outcome

    def progress(self) -> Progress:
        return self._meter.progress(self._origin_ns)

    def close(self) -> None:
        """Nothing outlives `run`."""

    async def _closed_loop(self, load: Closed, planned: Sequence[Planned]) -> None:
        left = iter(planned)

        async def user() -> None:
            for one in left:
                await self._converse(one.conversation, one.measured, None)

        async with asyncio.TaskGroup() as group:
            for _ in range(users(load, *self._part)):
                group.create_task(user())

    async def _open_loop(self, origin_ns: int) -> None:
        async with asyncio.TaskGroup() as group:
            for one in self._planned:
                assert one.offset_s is not None
                due_ns = origin_ns + round(one.offset_s * 1e9)
                # Overdue arrivals yield as well: a burst must not keep the answers before it from being read.
                await asyncio.sleep(seconds_until(due_ns - CONNECT_AHEAD_NS))
                group.create_task(self._converse(one.conversation, one.measured, due_ns))

    async def _converse(self, conversation: Conversation, measured: bool, due_ns: int | None) -> None:
        """Only the first turn has a time of its own; each other follows the answer before it at once."""
        history: list[Message] = []
        for index, turn in enumerate(conversation.turns):
            history += turn.messages
            sample = RequestSample(scheduled_ns=None if index else due_ns)
            await self._ask(sample, history, turn.output_tokens, measured)
            if not sample.ok:
                self._outcome.unsent += (len(conversation.turns) - index - 1) * measured
                break
            history.append({"role": "assistant", "content": sample.text})

    async def _ask(self, sample: RequestSample, history: Sequence[Message], tokens: int, measured: bool) -> None:
        spec, address, dialect = self._spec, self._address, self._dialect
        watched = self._meter.begin(sample) if measured else None
        await stream_request(
            address.host,
            address.port,
            address.root + dialect.path,
            dialect.body(spec, history, tokens),
            address.headers,
            spec.deadline_s,
            sample=sample,
            reader=dialect.reader,
        )
        self._outcome.events += len(sample.events)
        self._answered = self._answered or sample.ok
        if not self._answered and (reason := hopeless(sample)):
            raise SpecError(reason)
        if watched is not None:
            self._meter.end(watched)
            self._outcome.samples.append(sample)


@contextmanager
def _without_collection() -> Iterator[None]:
    """A garbage collection that visits a million events stops the reading of all streams, and frees next to nothing."""
    wanted = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


def allow_many_connections() -> None:
    """As many files as this user may have open: every request in flight is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
