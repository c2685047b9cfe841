from pathlib import Path

import yaml

from bench.tune.write import as_yaml, changed, save, tuned
from server import config
from tests.bench.tune.records import won

SETTINGS = {"engine": {"args": {"max_num_seqs": 2, "dtype": "bfloat16"}}, "admission": None}
CHANGES = {
    "engine.args.max_num_seqs": 64,
    "engine.env.VLLM_CPU_OMP_THREADS_BIND": "0",
    "admission.slo.ttft_p99_ms": 1000.0,
    "admission.preferred_batch_size": [4, 8],
}


def test_changes_go_over_the_settings_which_stay_as_they_are() -> None:
    found = changed(SETTINGS, CHANGES)
    assert found["engine"]["args"] == {"max_num_seqs": 64, "dtype": "bfloat16"}
    assert found["admission"] == {"slo": {"ttft_p99_ms": 1000.0}, "preferred_batch_size": [4, 8]}
    assert SETTINGS["engine"]["args"]["max_num_seqs"] == 2  # type: ignore[index]


def test_the_server_takes_the_file_as_it_is(tmp_path: Path) -> None:
    path = save(tmp_path / "some" / "tuned.yaml", as_yaml(changed(SETTINGS, CHANGES)))
    found = config.load(path)
    assert found.engine.env == {"VLLM_CPU_OMP_THREADS_BIND": "0"}  # text, though it looks like a number
    assert found.engine.args["max_num_seqs"] == 64
    assert found.admission.preferred_batch_size == (4, 8)
    assert found.admission.slo.ttft_p99_ms == 1000.0


def test_the_file_says_on_top_what_was_found_how_surely_on_what_and_when() -> None:
    record = won()
    assert record.winner is not None
    text = tuned(record, record.winner, SETTINGS, "2026-11-30T12:00:00+00:00")
    header = [line for line in text.splitlines() if line.startswith("#")]
    said = "\n".join(header)
    assert text.startswith("#") and yaml.safe_load(text) == changed(SETTINGS, record.winner.changes)
    for part in ("ttft_p90<1s", "2026-11-30", "1.900 times", "interval 1.600 to 2.200", "A/A width 5.0%", "cores"):
        assert part in said
    assert "Changed: engine.args.max_num_seqs=128" in said
