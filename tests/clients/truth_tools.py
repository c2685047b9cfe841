"""Load generators, each put on one server: how it is started, and what its own result file says.

A figure goes by what it measures, not by its tool's name for it: `NAMES` has those.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.metrics import Distribution, Summary
from bench.run.load import run
from bench.run.spec import Closed, Spec
from tests.clients.client import SCRIPTS, Running, program, tokenizer

T = TypeVar("T")

MODEL = "truth"
CONCURRENCY = 4
WARMUP = 4
PROMPT = 16
DEADLINE_S = 120.0
CHAT = "/v1/chat/completions"


class ToolFailed(Exception):
    """It did not end well, or not with as many answers as it was told to ask for."""


@dataclass(frozen=True)
class Figure:
    """A median and a 99th percentile, in ms; or a single number."""

    value: float
    p99: float | None = None


Figures = Mapping[str, Figure]
"""By ttft, tpot, tpot_all (first token included), gap, e2e, tokens (of a request), rate (tokens/s); what there is."""


@dataclass(frozen=True)
class Tool:
    """`use` puts so many requests on a URL, with a folder for its files, and returns what it found."""

    title: str
    use: Callable[[str, int, Path], Awaitable[Figures]]


NAMES = {
    ("vllm", "gap"): "ITL",
    ("guidellm", "tpot"): "ITL",
    ("guidellm", "tpot_all"): "TPOT",
    ("aiperf", "tpot"): "ITL",
    ("aiperf", "gap"): "ICL",
}
"""Of figures whose tools call them otherwise than we do."""


def of_summary(found: Summary) -> Figures:
    latencies = {"ttft": found.ttft_ms, "tpot": found.tpot_ms, "gap": found.event_gap_ms, "e2e": found.e2e_ms}
    return {
        **{name: of_distribution(latency) for name, latency in latencies.items() if latency is not None},
        "tokens": Figure(found.output_tokens / found.completed),
        "rate": Figure(found.output_tokens_per_s),
    }


def of_distribution(found: Distribution) -> Figure:
    return Figure(found.percentiles["p50"], found.percentiles["p99"])


def of_vllm(found: Mapping[str, Any]) -> Figures:
    latencies = {"ttft": "ttft", "tpot": "tpot", "gap": "itl", "e2e": "e2el"}
    return {
        **{ours: Figure(found[f"median_{its}_ms"], found[f"p99_{its}_ms"]) for ours, its in latencies.items()},
        "tokens": Figure(found["total_output_tokens"] / found["completed"]),
        "rate": Figure(found["output_throughput"]),
    }


def of_guidellm(found: Mapping[str, Any]) -> Figures:
    """`found` is the metrics of its one benchmark; it gives a request's latency in seconds."""

    def latency(name: str, in_ms: float = 1.0) -> Figure:
        of = found[name]["successful"]
        return Figure(of["median"] * in_ms, of["percentiles"]["p99"] * in_ms)

    return {
        "ttft": latency("time_to_first_token_ms"),
        "tpot": latency("inter_token_latency_ms"),
        "tpot_all": latency("time_per_output_token_ms"),
        "e2e": latency("request_latency", in_ms=1e3),
        "tokens": Figure(found["output_token_count"]["successful"]["mean"]),
        "rate": Figure(found["output_tokens_per_second"]["successful"]["mean"]),
    }


def of_aiperf(found: Mapping[str, Any]) -> Figures:
    latencies = {
        "ttft": "time_to_first_token",
        "tpot": "inter_token_latency",
        "gap": "inter_chunk_latency",
        "e2e": "request_latency",
    }
    return {
        **{ours: Figure(found[its]["p50"], found[its]["p99"]) for ours, its in latencies.items()},
        "tokens": Figure(found["output_sequence_length"]["avg"]),
        "rate": Figure(found["output_token_throughput"]["avg"]),
    }


async def streamgauge(url: str, requests: int, folder: Path) -> Figures:
    """In processes of its own, as the others are: within the server's it would not have to wait for a core."""
    load = Closed(CONCURRENCY)
    found = (await run(Spec(url, MODEL, load, requests, warmup=WARMUP, deadline_s=DEADLINE_S, processes=2))).summary
    return of_summary(_all(requests, found.completed, found))


async def vllm(url: str, requests: int, folder: Path) -> Figures:
    where = ["--backend", "openai-chat", "--base-url", url, "--endpoint", CHAT, "--model", MODEL]
    prompts = ["--dataset-name", "random", "--random-input-len", str(PROMPT), "--tokenizer", tokenizer()]
    load = ["--num-prompts", str(requests), "--max-concurrency", str(CONCURRENCY), "--num-warmups", str(WARMUP)]
    figures = ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "99"]
    result = ["--disable-tqdm", "--save-result", "--result-dir", str(folder), "--result-filename", "vllm.json"]
    command = [sys.executable, str(SCRIPTS / "vllm_bench.py"), *where, *prompts, *load, *figures, *result]
    await _run(Running(command, folder, HF_HUB_OFFLINE="1"))
    found = _read(folder / "vllm.json")
    return of_vllm(_all(requests, found["completed"], found))


async def guidellm(url: str, requests: int, folder: Path) -> Figures:
    """It has no warm-up of requests that are not measured."""
    options = {
        "backend": f"kind=openai_http,target={url},model={MODEL}",
        "profile": f"kind=concurrent,streams={CONCURRENCY}",
        "constraint": f"kind=max_requests,count={requests}",
        "tokenizer": f"kind=hf_auto,model={tokenizer()}",
        "data": f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens=24",
        "output": f"kind=json,path={folder / 'guidellm.json'}",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    command = [program("benchmarks", "guidellm"), "run", *flags, "--disable-console"]
    await _run(Running(command, folder, HF_HUB_OFFLINE="1"))
    (benchmark,) = _read(folder / "guidellm.json")["benchmarks"]
    found = benchmark["metrics"]
    return of_guidellm(_all(requests, found["request_totals"]["successful"], found))


async def aiperf(url: str, requests: int, folder: Path) -> Figures:
    where = ["-m", MODEL, "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", tokenizer()]
    prompts = ["--synthetic-input-tokens-mean", str(PROMPT), "--output-tokens-mean", "24"]
    load = ["--request-count", str(requests), "--concurrency", str(CONCURRENCY), "--warmup-request-count", str(WARMUP)]
    server = ["--no-server-metrics", "--connection-reuse-strategy", "never"]
    result = ["--ui", "none", "--artifact-dir", str(folder)]
    command = [program("benchmarks", "aiperf"), "profile", *where, *server, *prompts, *load, *result]
    await _run(Running(command, folder))
    found = _read(folder / "profile_export_aiperf.json")
    return of_aiperf(_all(requests, round(found["request_count"]["avg"]), found))


TOOLS = {
    "streamgauge": Tool("streamgauge", streamgauge),
    "vllm": Tool("vllm bench serve", vllm),
    "guidellm": Tool("GuideLLM", guidellm),
    "aiperf": Tool("AIPerf", aiperf),
}


async def _run(tool: Running) -> None:
    """Not in this thread, which is the server's."""
    try:
        await asyncio.to_thread(tool.output)
    except AssertionError as failure:
        raise ToolFailed(str(failure)) from None


def _all(requests: int, completed: int, found: T) -> T:
    if completed != requests:
        raise ToolFailed(f"{completed} of {requests} requests completed")
    return found


def _read(path: Path) -> Any:
    return json.loads(path.read_text())
