"""`streamgauge tune`: from its options to files and an exit code.

Exit codes: 0, a better setting was found, or that none is better; 1, insufficient evidence; 2, it can't be done as
asked.
"""

import re
from pathlib import Path
from typing import Annotated

import typer

DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)")
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def tune(
    slo: Annotated[str, typer.Option(help="limits, as in 'ttft_p99<1s,tpot_p99<120ms'; error_rate<1% unless given")],
    model: Annotated[str | None, typer.Argument(help="as for `serve`; default: that of the settings")] = None,
    budget: Annotated[str, typer.Option(help="wall time, as in 90s, 30m or 2h; held within one trial")] = "30m",
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="YAML to start from; default: the device's profile")
    ] = None,
    output: Annotated[Path, typer.Option(file_okay=False, help="folder for tune.json, report.html, logs")] = Path(
        "results/tune"
    ),
    write: Annotated[Path, typer.Option(dir_okay=False, help="the settings, when better ones are found")] = Path(
        "configs/tuned.yaml"
    ),
    prompt_tokens: Annotated[str, typer.Option(metavar="LENGTHS", help="of prompts, as for `bench run`")] = "128",
    max_tokens: Annotated[str, typer.Option(metavar="LENGTHS", help="output tokens, as for `bench run`")] = "64",
    processes: Annotated[int, typer.Option(min=1, help="client processes that share the load")] = 1,
    seed: Annotated[int, typer.Option(help="equal seeds give equal prompts and arrivals")] = 0,
) -> None:
    """Search the settings of this machine's server for those that meet the objectives best, within a budget of time.

    Nothing is written to --write unless a setting wins outside the noise. Ctrl-C keeps what was learned till then.
    """
    from bench.cli import told
    from bench.extras import require

    with told("tune"):
        require("optuna", "plotly")
        from bench.run import options
        from bench.run.spec import Open, Prompts, Spec
        from bench.search.capacity import Search, wanted
        from bench.tune import command
        from bench.tune.search import Plan

        spec = Spec(
            url="",  # of each trial's own server
            model=model or "",
            load=Open("poisson"),
            requests=1,
            prompts=Prompts(lengths=options.lengths(prompt_tokens)),
            output=options.lengths(max_tokens),
            seed=seed,
            deadline_s=120.0,
            processes=processes,
        )
        # Below the first rate the edge makes no difference: trials are at no less than the closed loop's.
        edge = Search(
            spec, wanted(slo), seconds=20.0, requests=60, width=0.15, repeat=1, longest=60.0, lowest_share=1.0
        )
        code = command.execute(Plan(edge, seconds(budget), seed), config, model, output, write)
    raise typer.Exit(code)


def seconds(text: str) -> float:
    """Raises SpecError for what is no time above zero."""
    from bench.run.spec import SpecError

    found = DURATION.fullmatch(text.strip())
    if not found or not float(found[1]):
        raise SpecError(f"not a time: {text!r}; it reads 90s, 30m or 2h")
    return float(found[1]) * SECONDS[found[2]]
