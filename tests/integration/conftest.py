"""One real engine for all tests of this folder; it takes a minute to load."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.live import LiveServer, live_server, wait_until

HERE = Path(__file__).parent

# What third parties emit while vLLM is imported and loaded; everything else stays an error.
THIRD_PARTY_WARNINGS = ("ignore::FutureWarning:vllm.triton_utils.dispatcher",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(300))
            for warning in THIRD_PARTY_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def shared_server() -> Iterator[LiveServer]:
    with live_server() as server:
        yield server


@pytest.fixture
def live(shared_server: LiveServer) -> LiveServer:
    """The shared server, idle."""
    wait_until(shared_server.idle, "the engine is idle before the test", within=30)
    return shared_server
