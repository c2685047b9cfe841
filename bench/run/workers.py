"""A run shared by several processes: one core reads only so many events a second.

Each makes the whole plan and keeps its own part of it. The clock they share is the machine's, CLOCK_MONOTONIC.

    parent                    worker
       <- Ready               plan made, warm-up of a closed loop over
       origin_ns ->
       <- Progress            at most four times a second
       <- Outcome             or, at any time, SpecError
"""

import asyncio
import multiprocessing as mp
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from bench import loop
from bench.run.address import Address
from bench.run.meter import Progress, together
from bench.run.share import Outcome, Share
from bench.run.spec import Closed, Lost, Spec, SpecError

TICK_S = 0.25
STOP_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker waits for the origin."""


class Workers:
    """The same four methods as Share, over `spec.processes` of them; `close` ends every process."""

    def __init__(self, spec: Spec, address: Address) -> None:
        most = spec.load.concurrency if isinstance(spec.load, Closed) else spec.processes
        count = min(spec.processes, most)
        self._total = spec.requests
        self._latest: dict[int, Progress] = {}
        self._ttft_ns: list[int] = []
        self._gaps_ns: list[int] = []
        self._workers = [_Worker(spec, address, index, count) for index in range(count)]

    async def prepare(self) -> None:
        """Raises SpecError, and Lost for a process that ended."""
        for worker in self._workers:
            worker.start()
        for worker in self._workers:
            await worker.receive()

    async def run(self, origin_ns: int) -> Outcome:
        """Raises SpecError, and Lost for a process that ended."""
        for worker in self._workers:
            worker.pipe.send(origin_ns)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow(index)) for index in range(len(self._workers))]
        return _joined([task.result() for task in tasks])

    async def _follow(self, index: int) -> Outcome:
        while not isinstance(message := await self._workers[index].receive(), Outcome):
            self._latest[index] = message
            self._ttft_ns += message.ttft_ns
            self._gaps_ns += message.gaps_ns
        return message

    def progress(self) -> Progress:
        found = together(list(self._latest.values()), self._total, self._ttft_ns, self._gaps_ns)
        self._ttft_ns, self._gaps_ns = [], []
        return found

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()


class _Worker:
    def __init__(self, spec: Spec, address: Address, index: int, of: int) -> None:
        context = mp.get_context("spawn")
        self.pipe, self._theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(self._theirs, spec, address, index, of), daemon=True)
        self._messages: asyncio.Queue[Any] = asyncio.Queue()

    def start(self) -> None:
        self._process.start()
        # With the only other end in the process, its death is the end of the file.
        self._theirs.close()
        asyncio.get_running_loop().add_reader(self.pipe.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            self._messages.put_nowait(self.pipe.recv())
        except (EOFError, OSError):
            self._messages.put_nowait(Lost("a process of the load has ended early"))
            asyncio.get_running_loop().remove_reader(self.pipe.fileno())

    async def receive(self) -> Any:
        message = await self._messages.get()
        if isinstance(message, Exception):
            raise message
        return message

    def stop(self) -> None:
        self._theirs.close()
        if self._process.pid is not None:
            asyncio.get_running_loop().remove_reader(self.pipe.fileno())
            self._process.terminate()
            self._process.join(STOP_DEADLINE_S)
        self.pipe.close()


def _joined(parts: list[Outcome]) -> Outcome:
    return Outcome(
        samples=[sample for part in parts for sample in part.samples],
        unsent=sum(part.unsent for part in parts),
        events=sum(part.events for part in parts),
        cpu_ns=[cpu_ns for part in parts for cpu_ns in part.cpu_ns],
        ended_ns=max(part.ended_ns for part in parts),
    )


def _work(pipe: Connection, spec: Spec, address: Address, index: int, of: int) -> None:
    # Ctrl-C reaches the whole group; it is the parent that ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # EOFError, BrokenPipeError: nobody is left to work for. KeyboardInterrupt: the parent has ended this process.
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        loop.run(_share(pipe, Share(spec, address, index, of)))


async def _share(pipe: Connection, part: Share) -> None:
    try:
        await part.prepare()
        pipe.send(Ready())
        origin_ns = pipe.recv()  # the loop has nothing else to do
        async with asyncio.TaskGroup() as group:
            ticks = group.create_task(tick(lambda: pipe.send(part.progress())))
            outcome = await part.run(origin_ns)
            ticks.cancel()
    except* SpecError as group_of_errors:
        pipe.send(first_of(group_of_errors))
    else:
        pipe.send(part.progress())
        pipe.send(outcome)


async def tick(report: Callable[[], None]) -> None:
    """Calls `report` as often as a progress display wants it, for ever."""
    while True:
        await asyncio.sleep(TICK_S)
        report()


def first_of(error: BaseException) -> BaseException:
    """The first cause within groups of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
