import asyncio
import gc
from dataclasses import replace
from pathlib import Path

import pytest

from bench.run.load import Progress, run
from bench.run.result import Result
from bench.run.spec import Closed, Endpoint, Lengths, Open, Prompts, Spec, SpecError
from tests.support.truth_server import Asked, Script, TruthServer, truth_server
from tests.support.waiting import until

QUICK = Script(ttft_s=0.002, gap_s=0.001, events=3)
PLAIN = Spec("", "truth", Closed(4), 12, warmup=3, ignore_eos=False, include_timings=False)


def at(server: TruthServer, spec: Spec = PLAIN) -> Spec:
    return replace(spec, url=server.url)


class Refusing:
    """Answers, but refuses each so-many-th request."""

    def __init__(self, every: int, status: int, message: str) -> None:
        self._every = every
        self._refusal = Script(status=status, message=message)
        self._asked = 0

    def __call__(self, asked: Asked) -> Script:
        self._asked += 1
        return QUICK if self._asked % self._every else self._refusal


# Closed and open loops


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
async def test_a_closed_loop_measures_all_but_its_warm_up(endpoint: Endpoint) -> None:
    async with truth_server(QUICK) as server:
        result = await run(at(server, replace(PLAIN, endpoint=endpoint)))
    assert len(server.told) == 15
    assert sorted(sample.prompt_tokens or 0 for sample in result.samples) == list(range(3, 15))
    assert (result.summary.completed, result.summary.output_tokens) == (12, 36)
    stamps = [sample.sent_ns for sample in result.samples]
    assert stamps == sorted(stamps) and stamps[0] >= result.origin_ns
    assert result.origin_ns + result.wall_ns >= max(sample.done_ns or 0 for sample in result.samples)
    assert result.summary.lateness_ms is None


async def test_an_open_loop_sends_when_it_is_due_and_counts_from_then() -> None:
    async with truth_server(QUICK) as server:
        spec = at(server, replace(PLAIN, load=Open("constant", 100.0)))
        result = await run(spec)
    due = [sample.scheduled_ns or 0 for sample in result.samples]
    assert [round((stamp - due[0]) / 1e6) for stamp in due] == [10 * number for number in range(12)]
    assert result.origin_ns == due[0]
    for sample in result.samples:
        told = server.told[sample.prompt_tokens or 0]
        assert sample.lateness_ns is not None and sample.lateness_ns >= 0
        assert sample.ttft_ns is not None and sample.ttft_ns >= told.token_ns[0] - (sample.scheduled_ns or 0)
    assert len(server.told) == 15 and result.summary.lateness_ms is not None


async def test_an_open_loop_waits_for_no_answer() -> None:
    most = 0
    async with truth_server(Script(ttft_s=0.2, events=2)) as server:

        def look(progress: Progress) -> None:
            nonlocal most
            most = max(most, progress.in_flight)

        await run(at(server, replace(PLAIN, load=Open("constant", 200.0), requests=60)), look)
    assert most > 4


async def test_a_trace_is_replayed_with_its_lengths(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("Timestamp,Request tokens,Response tokens\n" + "".join(f"{n},{n + 5},{n + 1}\n" for n in range(6)))
    async with truth_server(QUICK) as server:
        load = Open("trace", trace=path, speed=100.0)
        await run(at(server, replace(PLAIN, load=load, requests=6, warmup=0)))
    asked = [(len(one.body["messages"][0]["content"].split()), one.body["max_tokens"]) for one in server.asked]
    assert asked == [(n + 5, n + 1) for n in range(6)]


async def test_conversations_go_on_with_the_real_answers() -> None:
    async with truth_server(replace(QUICK, text=" so")) as server:
        spec = at(server, replace(PLAIN, load=Closed(1), prompts=Prompts(turns=3), requests=6, warmup=0))
        result = await run(spec)
    assert len(result.samples) == 6
    talks = [one.body["messages"] for one in server.asked]
    assert [len(messages) for messages in talks] == [1, 3, 5, 1, 3, 5]
    assert talks[2][:3] == talks[1]
    assert [message["content"] for message in talks[2] if message["role"] == "assistant"] == [" so so so"] * 2


async def test_later_turns_of_an_open_loop_have_no_schedule_of_their_own() -> None:
    async with truth_server(QUICK) as server:
        load = Open("constant", 100.0)
        result = await run(at(server, replace(PLAIN, load=load, prompts=Prompts(turns=2), requests=4, warmup=0)))
    assert sorted(sample.scheduled_ns is None for sample in result.samples) == [False, False, True, True]


async def test_a_conversation_ends_with_a_failure_and_what_it_left_unsaid_is_counted() -> None:
    async with truth_server(Refusing(2, 503, "later")) as server:
        spec = at(server, replace(PLAIN, load=Closed(1), prompts=Prompts(turns=3), requests=6, warmup=0))
        result = await run(spec)
    assert len(result.samples) == 4
    assert result.facts["unsent_turns"] == 2


async def test_two_runs_of_one_seed_send_the_same_bytes_and_another_seed_does_not() -> None:
    prompts = Prompts(lengths=Lengths("lognormal", 30, 0.5), prefix_tokens=4, prefixes=2)
    sent = []
    for seed in (1, 1, 2):
        async with truth_server(QUICK) as server:
            await run(at(server, replace(PLAIN, load=Open(rate=500.0), prompts=prompts, seed=seed)))
        sent.append(sorted(one.raw for one in server.asked))
    assert sent[0] == sent[1] != sent[2]


# What is not answered


async def test_failures_and_refusals_are_kept_and_counted_by_reason() -> None:
    async with truth_server(Refusing(3, 503, "later")) as server:
        result = await run(at(server, replace(PLAIN, warmup=0)))
    assert result.summary.failures == {"http 503": 4}
    assert len(result.samples) == 12
    assert {sample.detail for sample in result.samples if not sample.ok} == {'{"error": {"message": "later"}}'}


async def test_a_stream_that_breaks_off_is_a_failure() -> None:
    async with truth_server(replace(QUICK, break_off=True)) as server:
        result = await run(at(server))
    assert result.summary.failures == {"cut": 12}


async def test_a_request_has_its_deadline() -> None:
    async with truth_server(Script(ttft_s=60.0)) as server:
        result = await run(at(server, replace(PLAIN, requests=2, warmup=0, deadline_s=0.2)))
    assert result.summary.failures == {"deadline": 2}


@pytest.mark.parametrize("warmup", [0, 3])
async def test_a_field_that_the_server_refuses_ends_the_run_with_its_name(warmup: int) -> None:
    def script(asked: Asked) -> Script:
        known = "ignore_eos" not in asked.body
        return QUICK if known else Script(status=400, message="Unrecognized request argument: ignore_eos")

    async with truth_server(script) as server:
        with pytest.raises(SpecError, match="doesn't know ignore_eos"):
            await run(at(server, replace(PLAIN, ignore_eos=True, warmup=warmup)))
        assert (await run(at(server))).summary.completed == 12


@pytest.mark.parametrize("load", [Closed(4), Open("poisson", 500.0)])
async def test_a_model_that_is_not_there_ends_the_run(load: Closed | Open) -> None:
    async with truth_server(Script(status=404, message="no model of that name")) as server:
        with pytest.raises(SpecError, match="no model of that name"):
            await run(at(server, replace(PLAIN, load=load)))


async def test_a_refusal_after_an_answer_is_only_counted() -> None:
    async with truth_server(Refusing(4, 404, "gone")) as server:
        result = await run(at(server, replace(PLAIN, load=Closed(1), warmup=0)))
    assert result.summary.failures == {"http 404": 3}


async def test_a_server_that_is_not_there_or_speaks_otherwise_is_an_error() -> None:
    async with truth_server() as server:
        pass
    with pytest.raises(SpecError, match="no server"):
        await run(at(server))
    with pytest.raises(SpecError, match="https"):
        await run(replace(PLAIN, url="https://127.0.0.1:1"))


# What is told


async def test_the_key_goes_with_every_request_and_into_no_result() -> None:
    async with truth_server(QUICK) as server:
        result = await run(at(server, replace(PLAIN, api_key="sesame")))
    assert {one.headers["authorization"] for one in server.asked} == {"Bearer sesame"}
    assert "sesame" not in repr(result.as_dict())


async def test_the_result_knows_the_machine_the_versions_and_the_clients_cost() -> None:
    async with truth_server(QUICK, pages={"/version": b'{"version": "0.32.0"}'}) as server:
        result = await run(at(server))
    facts = result.facts
    assert facts["machine"]["cores"] >= 1 and facts["versions"]["python"]
    assert facts["server"] == {"version": "0.32.0"}
    assert facts["client_cpu_us_per_event"] > 0
    assert facts["client_processes"] == 1 and len(facts["client_busy"]) == 1
    assert facts["unsent_turns"] == 0


async def test_the_servers_gauges_are_kept_from_the_start_of_the_measured_part() -> None:
    page = b"streamgauge_engine_waiting 3\n"
    async with truth_server(replace(QUICK, ttft_s=1.2), pages={"/metrics": page}) as server:
        result = await run(at(server, replace(PLAIN, requests=4, warmup=0)))
    assert set(result.series) == {"streamgauge_engine_waiting"}
    for after_s, value in result.series["streamgauge_engine_waiting"]:
        assert after_s >= 0 and value == 3.0


async def test_a_result_survives_its_file(tmp_path: Path) -> None:
    async with truth_server(QUICK) as server:
        result = await run(at(server, replace(PLAIN, load=Open(rate=200.0))))
    found = Result.load(result.save(tmp_path))
    assert found.summary == result.summary
    assert found.facts == result.facts


async def test_progress_ends_with_everything_done() -> None:
    told: list[Progress] = []
    async with truth_server(replace(QUICK, ttft_s=0.3)) as server:
        await run(at(server, replace(PLAIN, requests=8)), told.append)
    last = told[-1]
    assert (last.done, last.failed, last.in_flight, last.total, last.tokens) == (8, 0, 0, 8, 24)
    assert len(told) > 1 and [one.done for one in told] == sorted(one.done for one in told)
    assert sum(len(one.ttft_ns) for one in told) == 8
    assert sum(len(one.gaps_ns) for one in told) == 16


async def test_what_the_display_raises_ends_the_run() -> None:
    def stop(progress: Progress) -> None:
        raise ZeroDivisionError

    async with truth_server(Script(ttft_s=60.0)) as server, asyncio.timeout(30):
        with pytest.raises(ZeroDivisionError):
            await run(at(server, replace(PLAIN, warmup=0)), stop)


async def test_a_cancelled_run_leaves_no_task_and_the_collector_as_it_was() -> None:
    async with truth_server(Script(ttft_s=60.0)) as server:
        task = asyncio.create_task(run(at(server, replace(PLAIN, warmup=0))))
        await until(lambda: len(server.told) == 4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: len(asyncio.all_tasks()) == 1)
    assert gc.isenabled()
