"""What all tests share: the one real engine, and what a skip means."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.integration.live import LiveServer, live_server, wait_until

# Machines differ and are shared: an example may take its time, a hang is the suite's timeout's business.
settings.register_profile("streamgauge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamgauge")

HERE = Path(__file__).parent
ENGINE_TESTS = {HERE / "integration": 300, HERE / "clients": 600}  # seconds for each
FAIL_ON_SKIP = os.environ.get("STREAMGAUGE_FAIL_ON_SKIP") == "1"


LONG = os.environ.get("STREAMGAUGE_LONG") == "1"  # runs tests that sit through real time limits


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests with the real engine come last, so that the others run without one beside them."""
    if not LONG:
        long = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
    for item in items:
        for folder, timeout in ENGINE_TESTS.items():
            if folder in item.path.parents:
                item.add_marker(pytest.mark.engine)
                item.add_marker(pytest.mark.timeout(timeout))
    items.sort(key=lambda item: item.get_closest_marker("engine") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where everything must be there, as in continuous integration, a test that is left out is one that failed."""
    report = yield
    if FAIL_ON_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, where no test may be: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def shared_server() -> Iterator[LiveServer]:
    """One real engine for all tests; it takes half a minute to load."""
    with live_server() as server:
        yield server


@pytest.fixture
def live(shared_server: LiveServer) -> Iterator[LiveServer]:
    """The shared server, idle before each test; what a failed one has left in the engine is aborted."""
    yield shared_server
    if not shared_server.idle():
        shared_server.run(shared_server.abort_all())
    wait_until(shared_server.idle, "the engine is idle after the test", within=30)
