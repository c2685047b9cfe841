from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.run.spec import SpecError
from bench.tune.cli import seconds, tune
from bench.tune.command import read

app = typer.Typer()
app.command()(tune)


@pytest.mark.parametrize(("text", "found"), [("90s", 90.0), ("30m", 1800.0), ("1.5h", 5400.0)])
def test_a_budget_is_a_time(text: str, found: float) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize("text", ["30", "0m", "m", "-3m", "1h30m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not a time"):
        seconds(text)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--slo", "ttft<1s"), "not an objective: 'ttft<1s'"),
        (("--slo", "ttft_p99<1s,goodput>2"), "goodput is what it finds"),
        (("--slo", "ttft_p99<1s", "--budget", "soon"), "not a time: 'soon'"),
        (("--slo", "ttft_p99<1s", "--max-tokens", "many"), "not a number of tokens: 'many'"),
    ],
)
def test_what_cannot_be_done_as_asked_is_told_in_a_line_with_exit_code_2(
    options: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    ran = CliRunner().invoke(app, [*options, "--output", str(tmp_path / "out")])
    assert ran.exit_code == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith("streamgauge tune: ") and problem in line
    assert not (tmp_path / "out").exists()


def test_settings_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("- a list")
    with pytest.raises(SpecError, match="expected sections"):
        read(path)
    path.write_text("a: [")
    with pytest.raises(SpecError, match=str(path)):
        read(path)
    path.write_text("")
    assert read(path) == {}
