"""Others' load generators. They must count what was asked for; how fast it was is not looked at here."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.client import MODEL, SCRIPTS, Running, program, tokenizer
from tests.integration.live import LiveServer

REQUESTS = 8
PROMPT = 16
OUTPUT = 8


@pytest.mark.parametrize(
    ("backend", "path"), [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")], ids=str
)
def test_vllm_bench_serve_counts_every_token(live: LiveServer, tmp_path: Path, backend: str, path: str) -> None:
    where = ["--backend", backend, "--base-url", live.base_url, "--endpoint", path, "--model", MODEL]
    prompts = ["--dataset-name", "random", "--random-input-len", str(PROMPT), "--random-output-len", str(OUTPUT)]
    load = ["--num-prompts", str(REQUESTS), "--max-concurrency", "2", "--ignore-eos", "--tokenizer", tokenizer()]
    result = ["--disable-tqdm", "--save-result", "--result-dir", str(tmp_path), "--result-filename", "result.json"]
    command = [sys.executable, str(SCRIPTS / "vllm_bench.py"), *where, *prompts, *load, *result]
    Running(command, tmp_path, HF_HUB_OFFLINE="1").output()
    found = json.loads((tmp_path / "result.json").read_text())
    assert (found["completed"], found["failed"]) == (REQUESTS, 0)
    assert found["total_output_tokens"] == REQUESTS * OUTPUT
    assert found["mean_ttft_ms"] > 0


def test_guidellm_completes_every_request(live: LiveServer, tmp_path: Path) -> None:
    options = {
        "backend": f"kind=openai_http,target={live.base_url},model={MODEL}",
        "profile": "kind=concurrent,streams=2",
        "constraint": f"kind=max_requests,count={REQUESTS}",
        "tokenizer": f"kind=hf_auto,model={tokenizer()}",
        "data": f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={OUTPUT}",
        "output": f"kind=json,path={tmp_path / 'result.json'}",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    command = [program("benchmarks", "guidellm"), "run", *flags, "--disable-console"]
    Running(command, tmp_path, HF_HUB_OFFLINE="1").output()
    (found,) = json.loads((tmp_path / "result.json").read_text())["benchmarks"]
    totals = found["metrics"]["request_totals"]
    assert totals == {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
    assert found["metrics"]["output_token_count"]["successful"]["total_sum"] == REQUESTS * OUTPUT


def test_aiperf_completes_every_request_and_reads_the_servers_metrics(live: LiveServer, tmp_path: Path) -> None:
    where = ["-m", MODEL, "--url", live.base_url, "--endpoint-type", "chat", "--streaming", "--tokenizer", tokenizer()]
    lengths = ["--synthetic-input-tokens-mean", str(PROMPT), "--output-tokens-mean", str(OUTPUT)]
    load = ["--request-count", str(REQUESTS), "--concurrency", "2", "--extra-inputs", "ignore_eos:true"]
    result = ["--ui", "none", "--artifact-dir", str(tmp_path / "result")]
    Running([program("benchmarks", "aiperf"), "profile", *where, *lengths, *load, *result], tmp_path).output()
    found: dict[str, Any] = json.loads((tmp_path / "result" / "profile_export_aiperf.json").read_text())
    assert found["request_count"]["avg"] == REQUESTS
    assert found["error_summary"] == []
    assert found["total_usage_completion_tokens"]["avg"] == REQUESTS * OUTPUT
    assert "vllm:" in (tmp_path / "result" / "server_metrics_export.json").read_text()
