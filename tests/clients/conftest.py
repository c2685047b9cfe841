"""Others' clients, unmodified, against the real server with the real model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients import client
from tests.integration.live import LiveServer

Report = client.Report


@pytest.fixture(scope="package")
def run_python(shared_server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Report]:
    """The report of a script in an environment; each pair runs once."""
    reports: dict[tuple[str, str], Report] = {}

    def run(environment: str, script: str) -> Report:
        if (environment, script) not in reports:
            folder: Path = tmp_path_factory.mktemp(environment)
            reports[environment, script] = client.python(environment, script, shared_server, folder).report()
        return reports[environment, script]

    return run


@pytest.fixture(scope="package")
def run_node(shared_server: LiveServer) -> Callable[[str], Report]:
    reports: dict[str, Report] = {}

    def run(script: str) -> Report:
        if script not in reports:
            reports[script] = client.node(script, shared_server).report()
        return reports[script]

    return run
