"""Runs of several processes; each takes a second to start, so that there are few."""

import asyncio
import multiprocessing as mp
import os
import signal
from dataclasses import replace

import pytest

from bench.run.load import Progress, run
from bench.run.spec import Closed, Lost, Open, Prompts, Spec, SpecError
from tests.support.truth_server import Script, truth_server
from tests.support.waiting import until

QUICK = Script(ttft_s=0.01, gap_s=0.002, events=3)
SPEC = Spec("", "truth", Closed(5), 20, warmup=5, processes=2, ignore_eos=False, include_timings=False)


async def test_processes_share_a_closed_loop_and_their_results_are_one() -> None:
    told: list[Progress] = []
    async with truth_server(QUICK) as server:
        result = await run(replace(SPEC, url=server.url), told.append)
    assert len(server.told) == 25
    assert (len(result.samples), result.summary.completed, result.summary.output_tokens) == (20, 20, 60)
    stamps = [sample.sent_ns for sample in result.samples]
    assert stamps == sorted(stamps) and stamps[0] >= result.origin_ns
    assert result.facts["client_processes"] == 2 and len(result.facts["client_busy"]) == 2
    assert (told[-1].done, told[-1].total, told[-1].tokens) == (20, 20, 60)
    assert sum(len(one.ttft_ns) for one in told) == 20
    assert sum(len(one.gaps_ns) for one in told) == 40


async def test_processes_send_together_what_one_would_send_alone() -> None:
    spec = replace(SPEC, load=Open("poisson", 100.0), prompts=Prompts(prefix_tokens=9, prefixes=3))
    sent, due = [], []
    for processes in (1, 2):
        async with truth_server(QUICK) as server:
            result = await run(replace(spec, url=server.url, processes=processes))
        stamps = [sample.scheduled_ns or 0 for sample in result.samples]
        sent.append(sorted(one.raw for one in server.asked))
        due.append([stamp - stamps[0] for stamp in stamps])
    assert sent[0] == sent[1]
    assert due[0] == due[1]


async def test_a_refusal_that_speaks_for_all_ends_every_process() -> None:
    async with truth_server(Script(status=401, message="who are you?")) as server:
        with pytest.raises(SpecError, match="who are you"):
            await run(replace(SPEC, url=server.url))
    assert mp.active_children() == []


async def test_a_cancelled_run_ends_its_processes() -> None:
    async with truth_server(Script(ttft_s=60.0)) as server:
        task = asyncio.create_task(run(replace(SPEC, url=server.url, warmup=0)))
        await until(lambda: len(server.told) == 5, seconds=60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert mp.active_children() == []


async def test_a_process_that_dies_is_not_waited_for() -> None:
    async with truth_server(Script(ttft_s=60.0)) as server:
        task = asyncio.create_task(run(replace(SPEC, url=server.url, warmup=0)))
        await until(lambda: len(server.told) == 5, seconds=60)
        os.kill(mp.active_children()[0].pid or 0, signal.SIGKILL)
        with pytest.raises(Lost):
            await task
    assert mp.active_children() == []


async def test_there_are_no_more_processes_than_users() -> None:
    async with truth_server(QUICK) as server:
        result = await run(replace(SPEC, url=server.url, load=Closed(1), requests=2, warmup=0))
    assert result.facts["client_processes"] == 1
