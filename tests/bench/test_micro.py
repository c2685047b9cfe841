import json

import pytest

from bench.micro import bench_probe, client


def test_the_client_is_measured_on_every_event_that_was_played(capsys: pytest.CaptureFixture[str]) -> None:
    client.main(["--streams", "3", "--events", "5", "--step-ms", "1"])
    found = json.loads(capsys.readouterr().out)
    # Five events and the one with the usage.
    assert (found["events"], found["failed"]) == (18, 0)
    assert found["client_cpu_us_per_event"] > 0


def test_the_probe_costs_something_in_both_places(capsys: pytest.CaptureFixture[str]) -> None:
    bench_probe.main(["--sequences", "1", "8", "--repeat", "2"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["sequences"] for line in found] == [1, 8]
    for line in found:
        assert line["engine_us"]["median"] > 0
        assert line["server_us"]["median"] > 0
