"""The examination: what it says of a machine, and the table of an engine's steps."""

from io import StringIO

from rich.console import Console
from rich.table import Table

from sampling.probe.records import PARTS, Step
from server import config, doctor

MS = 10**6


def printed(table: Table) -> str:
    console = Console(width=120, file=StringIO())
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def steps(count: int, *, overlapped: bool = False) -> list[Step]:
    """Each of 100 ms: 80 in the forward, 10 in sampling, 10 overhead."""
    found = []
    for _ in range(count):
        fields = dict.fromkeys(Step.__dataclass_fields__, 0) | {"forward": 80 * MS, "sample": 10 * MS}
        fields |= {"overhead": 10 * MS, "wall": 100 * MS, "running": 16, "room": 64, "decode_tokens": 16}
        found.append(Step(**{**fields, "overlapped": overlapped}))  # type: ignore[arg-type]
    return found


def test_the_table_has_each_part_and_its_share() -> None:
    text = printed(doctor.steps_table(steps(10)))
    for part in PARTS:
        assert part in text
    (forward,) = [line for line in text.splitlines() if "forward" in line]
    assert "80.000" in forward
    assert "80.0%" in forward
    assert "gap: overhead" in text


def test_the_line_above_it_has_the_batch_and_the_utilization() -> None:
    expected = "10 steps, 16.0 of 64 sequences, 160 decode tokens/s, effective utilization 90%"
    assert doctor.summary(steps(10)) == expected
    assert doctor.summary(steps(10, overlapped=True)) == f"{expected}, steps overlap: parts do not add up"


def test_a_look_at_this_machine_names_what_the_engine_runs_on() -> None:
    findings = {finding.what: finding for finding in doctor.look(config.load(None, [], {}))}
    assert {"python", "torch", "vllm", "device", "cores", "memory", "model"} <= set(findings)
    assert findings["vllm"].concern is None
    assert "smollm2-135m" in findings["model"].is_so
    text = printed(doctor.findings_table(list(findings.values())))
    assert "smollm2-135m" in text


def test_a_library_that_is_missing_is_a_concern() -> None:
    assert doctor._unless("malloc", ["libiomp5.so"], "no allocator") == "no allocator: the engine will be slower"
    assert doctor._unless("malloc", ["libtcmalloc_minimal.so.4"], "no allocator") is None
