"""One real engine for all tests of this folder; it takes a minute to load."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.live import LiveServer, live_server, wait_until

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="package")
def shared_server() -> Iterator[LiveServer]:
    with live_server() as server:
        yield server


@pytest.fixture
def live(shared_server: LiveServer) -> Iterator[LiveServer]:
    """The shared server, idle before each test; what a failed one has left in the engine is aborted."""
    yield shared_server
    if not shared_server.idle():
        shared_server.run(shared_server.abort_all())
    wait_until(shared_server.idle, "the engine is idle after the test", within=30)
