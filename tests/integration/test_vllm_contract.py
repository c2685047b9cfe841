"""What the adapter leans on below vLLM's public API. A failure here says what has to be looked at for a new version."""

import asyncio
import inspect
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import pytest

from sampling.params import SamplingParams as OurParams
from server.errors import InvalidRequest, Overloaded
from tests.integration.live import DEADLINE_S, LiveServer, generate, submit, until, vllm_gauge

if TYPE_CHECKING:  # vLLM is imported when the engine loads, after its environment is set
    from vllm import SamplingParams
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

PROMPT = [1, 504, 3575, 282, 4649, 314]


class Collector:
    """The shape of RequestOutputCollector that AsyncLLM's output task and abort use."""

    def __init__(self) -> None:
        self.put_in: list[RequestOutput | Exception] = []

    def put(self, output: "RequestOutput | Exception") -> None:
        self.put_in.append(output)

    def close(self) -> None:
        pass

    @property
    def outputs(self) -> "list[RequestOutput]":
        return [output for output in self.put_in if not isinstance(output, Exception)]

    @property
    def ids(self) -> list[int]:
        return [token_id for output in self.outputs for token_id in output.outputs[0].token_ids]

    @property
    def finished(self) -> bool:
        return any(output.finished for output in self.outputs)


def greedy(max_tokens: int, kind: str = "DELTA", **options: Any) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    output_kind = RequestOutputKind[kind]
    return SamplingParams(temperature=0, max_tokens=max_tokens, output_kind=output_kind, detokenize=False, **options)


def process(llm: "AsyncLLM", name: str, params: "SamplingParams", prompt: list[int], tasks: Any) -> Any:
    from vllm.inputs.engine import tokens_input

    return llm.input_processor.process_inputs(name, tokens_input(list(prompt)), params, supported_tasks=tasks)


async def add(
    llm: "AsyncLLM", name: str, params: "SamplingParams", prompt: list[int] = PROMPT
) -> tuple[str, Collector]:
    """As the adapter does it; returns vLLM's internal id."""
    request = process(llm, name, params, prompt, await llm.get_supported_tasks())
    llm.input_processor.assign_request_id(request)
    llm._run_output_handler()
    collector = Collector()
    await llm._add_request(request, None, None, 0, collector)  # type: ignore[arg-type]
    return request.request_id, collector


async def finished(*collectors: Collector) -> None:
    await until(lambda: all(c.finished for c in collectors), "the requests have finished", DEADLINE_S)


def test_the_pinned_version_is_installed(live: LiveServer) -> None:
    import vllm

    from server.engine.vllm_engine import VLLM_VERSION

    assert VLLM_VERSION == "0.32.0"
    assert vllm.__version__.split("+")[0] == VLLM_VERSION


def test_the_methods_we_call_have_the_parameters_we_pass(live: LiveServer) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

    assert list(inspect.signature(AsyncLLM._add_request).parameters)[1:] == [
        "request",
        "prompt",
        "parent_req",
        "index",
        "queue",
    ]
    assert list(inspect.signature(AsyncLLM.abort).parameters)[1:] == ["request_id", "internal"]
    assert not inspect.iscoroutinefunction(AsyncLLM._run_output_handler)
    assert not inspect.iscoroutinefunction(AsyncLLM.shutdown)
    assert list(inspect.signature(OutputProcessor.propagate_error).parameters) == ["self", "e"]
    assert list(inspect.signature(RequestOutputCollector.put).parameters) == ["self", "output"]


def test_joined_deltas_equal_the_final_output(live: LiveServer) -> None:
    async def both() -> tuple[Collector, Collector]:
        _, deltas = await add(live.llm, "deltas", greedy(24, ignore_eos=True))
        await finished(deltas)
        _, final = await add(live.llm, "final", greedy(24, "FINAL_ONLY", ignore_eos=True))
        await finished(final)
        return deltas, final

    deltas, final = live.run(both())
    assert len(deltas.outputs) == 24, "a put per step"
    assert len(final.outputs) == 1
    assert deltas.ids == final.ids
    assert [output.finished for output in deltas.outputs] == [False] * 23 + [True]
    assert deltas.outputs[-1].outputs[0].finish_reason == "length"


def test_a_stop_token_is_the_last_id_and_its_reason_is_stop(live: LiveServer) -> None:
    async def stopped() -> Collector:
        _, collector = await add(live.llm, "stop", greedy(24, logit_bias={9: 100.0}, stop_token_ids=[9]))
        await finished(collector)
        return collector

    collector = live.run(stopped())
    assert collector.ids == [9]
    assert collector.outputs[-1].outputs[0].finish_reason == "stop"


def test_process_inputs_sets_the_end_of_sequence_tokens(live: LiveServer) -> None:
    async def processed() -> Any:
        return process(live.llm, "eos", greedy(4), PROMPT, await live.llm.get_supported_tasks())

    params = live.run(processed()).sampling_params
    assert params.eos_token_id == 2
    assert 2 in params.all_stop_token_ids


def test_equal_external_ids_are_two_requests(live: LiveServer) -> None:
    async def twice() -> list[tuple[str, Collector]]:
        added = [await add(live.llm, "same", greedy(tokens, ignore_eos=True)) for tokens in (6, 40)]
        await live.llm.abort([added[1][0]], internal=True)
        await finished(added[0][1])
        return added

    (first, kept), (second, aborted) = live.run(twice())
    assert first != second
    assert first.startswith("same-")
    assert len(kept.ids) == 6
    assert aborted.outputs[-1].outputs[0].finish_reason == "abort"
    assert len(aborted.ids) < 40


def test_an_abort_frees_the_cache_and_unknown_ids_are_harmless(live: LiveServer) -> None:
    async def aborted() -> None:
        await live.llm.abort(["never-heard-of"], internal=True)
        name, collector = await add(live.llm, "cache", greedy(1500, ignore_eos=True), PROMPT * 50)
        await until(lambda: bool(collector.ids), "it generates", DEADLINE_S)
        await until(lambda: vllm_gauge("vllm:kv_cache_usage_perc") > 0, "the cache is in use")
        await live.llm.abort([name, "never-heard-of"], internal=True)
        await live.llm.abort([name], internal=True)
        await until(lambda: vllm_gauge("vllm:kv_cache_usage_perc") == 0, "the cache is free")

    live.run(aborted())
    assert live.unfinished == 0


def test_an_abort_before_the_add_is_harmless(live: LiveServer) -> None:
    handle = live.run(_abort_at_once(live))
    handle.abort()
    assert live.unfinished == 0


async def _abort_at_once(live: LiveServer) -> Any:
    sequence = submit(live.engine, "at-once", PROMPT, OurParams(max_tokens=1000))
    assert sequence.handle is not None
    sequence.handle.abort()
    await asyncio.sleep(0.5)
    assert sequence.deltas == [], "nothing is called back after an abort"
    return sequence.handle


def test_an_error_is_put_into_every_collector(live: LiveServer) -> None:
    error = RuntimeError("the output task has failed")

    async def told() -> list[Collector]:
        added = [await add(live.llm, f"told-{k}", greedy(1500, ignore_eos=True)) for k in range(3)]
        live.llm.output_processor.propagate_error(error)
        await live.llm.abort([name for name, _ in added], internal=True)
        return [collector for _, collector in added]

    for collector in live.run(told()):
        assert error in collector.put_in


def test_messages_from_the_engine_are_stamped_before_they_are_worked_on(live: LiveServer) -> None:
    assert live.llm.output_handler.get_name() == "engine-outputs", "ours, in the place of AsyncLLM's own"

    async def stamped() -> int:
        _, collector = await add(live.llm, "stamp", greedy(2, ignore_eos=True))
        await finished(collector)
        return int(live.adapter._latest.received_ns)

    before = monotonic_ns()
    assert before < live.run(stamped()) < monotonic_ns()


def test_vllms_own_series_count_what_goes_past_its_output_processor(live: LiveServer) -> None:
    """The middle of an answer does; an engine's users have dashboards of these."""
    from server.engine.vllm_series import DELAY_S

    names = ("vllm:generation_tokens_total", "vllm:inter_token_latency_seconds_count", "vllm:request_success_total")

    async def counted() -> list[float]:
        await asyncio.sleep(2 * DELAY_S)  # what came before this is counted by then
        before = [vllm_gauge(name) for name in names]
        await generate(live.engine, "series", PROMPT, OurParams(max_tokens=24, ignore_eos=True))
        await until(lambda: vllm_gauge(names[-1]) > before[-1], "the request is counted", DEADLINE_S)
        return [vllm_gauge(name) - was for name, was in zip(names, before, strict=True)]

    assert live.run(counted()) == [24, 23, 1]


def test_the_engines_stamps_are_of_this_hosts_monotonic_clock(live: LiveServer) -> None:
    async def timed() -> tuple[int, Collector, int]:
        before = monotonic_ns()
        _, collector = await add(live.llm, "clock", greedy(3, ignore_eos=True))
        await finished(collector)
        return before, collector, monotonic_ns()

    before, collector, after = live.run(timed())
    stats = collector.outputs[-1].metrics
    assert stats is not None
    stamps = [stats.queued_ts, stats.scheduled_ts, stats.first_token_ts, stats.last_token_ts]
    assert stamps == sorted(stamps)
    assert before < stamps[0] * 1e9
    assert stamps[-1] * 1e9 < after


def test_generation_defaults_come_from_the_models_folder(live: LiveServer) -> None:
    diff = live.llm.model_config.get_diff_sampling_param()
    assert (diff["temperature"], diff["top_p"]) == (0.2, 0.9)
    assert live.engine.model.default_sampling == {"temperature": 0.2, "top_p": 0.9}


@pytest.mark.parametrize(
    "options", [{"logit_bias": {10**6: 1.0}}, {"stop_token_ids": (10**6,)}], ids=lambda o: next(iter(o))
)
def test_what_vllm_refuses_is_the_requests_fault(live: LiveServer, options: dict[str, Any]) -> None:
    """Our own checks come first; this is what stands behind them."""
    sequence = live.run(generate(live.engine, "refused", PROMPT, OurParams(max_tokens=2, **options)))
    (delta,) = sequence.deltas
    assert isinstance(delta.error, InvalidRequest)
    assert live.unfinished == 0


def test_what_vllm_has_no_room_for_is_an_overload(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.llm.scheduler_config, "max_num_queued_reqs", 0)
    sequence = live.run(generate(live.engine, "too-many", PROMPT, OurParams(max_tokens=2)))
    (delta,) = sequence.deltas
    assert isinstance(delta.error, Overloaded)
    assert live.unfinished == 0
