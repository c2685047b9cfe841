"""A client in an environment of its own: a process that talks to the server and prints what it saw."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from server.engine.model_store import ModelStore
from tests.integration.live import LiveServer, wait_until

MODEL = "smollm2-135m"
HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
ENVIRONMENTS = HERE.parents[1] / ".venv-clients"
WITHIN_S = 300


@dataclass(frozen=True)
class Report:
    """What `scripts/cases.py` or a Node script printed: each case's value, or the error it ended with."""

    outcomes: dict[str, dict[str, Any]]

    def __getitem__(self, case: str) -> Any:
        outcome = self.outcomes[case]
        assert "value" in outcome, outcome["error"]
        return outcome["value"]


class Running:
    """A client's process; `output` waits for its end."""

    def __init__(self, command: list[str], folder: Path, stdin: Path | None = None, **environment: str) -> None:
        source = stdin.open("rb") if stdin else subprocess.DEVNULL
        variables = _variables() | environment
        self._process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if stdin:
            source.close()  # type: ignore[union-attr]

    def output(self) -> str:
        out, errors = self._finished()
        assert self._process.returncode == 0, f"{out[-3000:]}\n{errors[-3000:]}"
        return out

    def parsed(self) -> Any:
        """The JSON it printed, whatever its exit status."""
        out, errors = self._finished()
        assert out.lstrip().startswith("{"), f"{out[-3000:]}\n{errors[-3000:]}"
        return json.loads(out)

    def report(self) -> Report:
        return Report(json.loads(self.output().splitlines()[-1]))

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def _finished(self) -> tuple[str, str]:
        try:
            return self._process.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, errors = self._process.communicate()
            pytest.fail(f"not done within {WITHIN_S} s\n{out[-3000:]}\n{errors[-3000:]}")


def program(environment: str, name: str) -> str:
    """A program of `.venv-clients/<environment>`, which `make clients` made; without it the test is skipped."""
    folder = ENVIRONMENTS / environment
    if not (folder / ".stamp").exists():
        pytest.skip(f"the clients' environment {environment} is missing: make clients")
    return str(folder / "bin" / name)


def python(environment: str, script: str, server: LiveServer, folder: Path) -> Running:
    return Running([program(environment, "python"), str(SCRIPTS / script), server.base_url, MODEL], folder)


def node(script: str, server: LiveServer) -> Running:
    """From stdin, so that modules are found from the working folder."""
    program("node", "node")
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no node on this machine")
    command = [found, "--input-type=module", "-", server.base_url, MODEL]
    return Running(command, ENVIRONMENTS / "node", SCRIPTS / script)


def tokenizer() -> str:
    return ModelStore().resolve(MODEL)


@contextmanager
def full(server: LiveServer) -> Iterator[None]:
    """Every slot of the engine is taken, and nobody waits for one: requests are refused with 503 and Retry-After."""
    admission = server.services.admission
    taken, patience = admission.slots.limit, admission.max_wait
    admission.slots.in_use += taken
    admission.max_wait = 0.001
    try:
        yield
    finally:
        admission.slots.in_use -= taken
        admission.max_wait = patience


def refused(server: LiveServer) -> int:
    counted = server.services.metrics.requests
    return sum(count for (_, outcome), count in counted.items() if outcome == "server_overloaded")


def let_in_after(refusals: int, client: Running, server: LiveServer, before: int) -> None:
    def enough() -> bool:
        return refused(server) - before >= refusals or client.ended

    wait_until(enough, f"the client was refused {refusals} times", within=WITHIN_S / 2)


def _variables() -> dict[str, str]:
    """Nothing of the engine's or the user's, and no way out: whoever asks another host gets no answer."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ}
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}
    return kept | nowhere | quiet
