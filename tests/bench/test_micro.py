import json

import pytest

from bench.micro import client


def test_the_client_is_measured_on_every_event_that_was_played(capsys: pytest.CaptureFixture[str]) -> None:
    client.main(["--streams", "3", "--events", "5", "--step-ms", "1"])
    found = json.loads(capsys.readouterr().out)
    # Five events and the one with the usage.
    assert (found["events"], found["failed"]) == (18, 0)
    assert found["client_cpu_us_per_event"] > 0
