"""Others' conformance tests."""

import json
from pathlib import Path
from typing import Any

import pytest

from server.config import ScriptedSettings
from server.engine.scripted_engine import ScriptedEngine
from tests.clients.client import MODEL, SCRIPTS, Running, program, tokenizer
from tests.integration.live import LiveServer
from tests.support.live import listening

# How many tests of each suite a server of a text model passes: all but those of images, which it refuses clearly, and
# of thinking, which the suite itself leaves out.
COMPLIANCE = {"openai-chat": 7, "open-responses": 11, "anthropic": 7}
CASES = 2000
GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
BODILESS = {"/v1/responses/{response_id}/cancel", "/v1/responses/compact"}


@pytest.mark.parametrize("protocol", COMPLIANCE)
def test_llm_comply_passes(live: LiveServer, tmp_path: Path, protocol: str) -> None:
    where = ["-u", f"{live.base_url}/v1", "-k", "none", "-m", MODEL, "--format", protocol, "--timeout", "60"]
    found = Running([program("suites", "llm-comply"), *where, "--json"], tmp_path).parsed()
    results: list[dict[str, Any]] = found["results"]
    failed = {result["id"]: result["errors"] for result in results if result["status"] == "failed"}
    (images,) = [name for name in failed if "image" in name]
    assert list(failed) == [images], failed
    assert any("HTTP 400" in error for error in failed[images])
    assert sum(result["status"] == "passed" for result in results) == COMPLIANCE[protocol]


def test_schemathesis_finds_no_server_error(live: LiveServer, tmp_path: Path) -> None:
    checks = ["--checks", "not_a_server_error", "--phases", "coverage,fuzzing", "--seed", "1"]
    size = ["--max-examples", "40", "--no-shrink", "--workers", "1"]
    report = ["--report", "json", "--report-json-path", str(tmp_path / "report.json"), "--no-color"]
    command = [program("suites", "schemathesis"), "run", f"{live.base_url}/openapi.json", *checks, *size, *report]
    hooks = {"PYTHONPATH": str(SCRIPTS), "SCHEMATHESIS_HOOKS": "schemathesis_hooks"}
    Running(command, tmp_path, **hooks).output()
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["failures"], found["errors"]) == ([], [])
    assert found["operations"]["tested"] == found["operations"]["total"]
    assert found["test_cases"]["generated"] >= CASES
    rates = found["valid_rates"]
    assert all(rates[f"POST {path}"]["coverage"]["accepted"] > 0 for path in GENERATING), rates


async def test_the_openapi_document_describes_every_body() -> None:
    """Else schemathesis would send none that a route reads."""
    engine = ScriptedEngine(ScriptedSettings(), tokenizer(), MODEL)
    async with listening(engine) as served:
        paths = json.loads((await served.get("/openapi.json")).body)["paths"]
    posts = {path: methods["post"] for path, methods in paths.items() if "post" in methods}
    assert {path for path, operation in posts.items() if "requestBody" not in operation} == BODILESS
