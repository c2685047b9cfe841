"""`streamgauge bench`: load on a server, and what it can take.

A command is its options and one call. What it works with is imported when it is called, so that --help stays quick.
Exit codes: 0, all is well; 1, an objective is missed or the figures can't be trusted; 2, it can't be done as asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bench.run import options
from bench.run.spec import Endpoint, Lost, Spec, SpecError

app = typer.Typer(no_args_is_help=True)

# How the options are grouped in --help.
ARRIVALS, TEXTS = "How requests come (one of --concurrency, --rate, --trace)", "What they say"

Url = Annotated[str, typer.Option(help="the server's address, with or without /v1")]
Model = Annotated[str, typer.Option(help="the model to name in requests")]
ApiKey = Annotated[str | None, typer.Option(envvar="STREAMGAUGE_API_KEY", help="sent as a bearer token")]
EndpointName = Annotated[Endpoint, typer.Option(help="which of OpenAI's endpoints")]
Requests = Annotated[int, typer.Option(min=1, help="how many are measured")]
Warmup = Annotated[int, typer.Option(min=0, help="how many come before and are not measured")]
Seed = Annotated[int, typer.Option(help="equal seeds give equal prompts and arrivals")]
Deadline = Annotated[float, typer.Option(min=0.001, help="seconds that a request may take")]
Processes = Annotated[int, typer.Option(min=1, help="client processes that share the load")]
MaxTokens = Annotated[
    str, typer.Option(metavar="LENGTHS", help="output tokens: 128, normal:MEAN:SPREAD or lognormal:MEDIAN:SPREAD")
]
PromptTokens = Annotated[
    str | None, typer.Option(metavar="LENGTHS", rich_help_panel=TEXTS, help="of synthetic prompts, as --max-tokens")
]
Concurrency = Annotated[int | None, typer.Option(min=1, rich_help_panel=ARRIVALS, help="so many at a time")]
Trace = Annotated[
    Path | None, typer.Option(exists=True, rich_help_panel=ARRIVALS, help="times and lengths from JSONL or CSV")
]
IgnoreEos = Annotated[bool, typer.Option(help="answers have all their tokens; not every server knows the field")]
Slo = Annotated[str | None, typer.Option(help="objectives, as in 'ttft_p99<1s,tpot_p99<200ms,error_rate<0.1%'")]
Output = Annotated[Path | None, typer.Option(file_okay=False, help="folder for result.json and report.html")]
Rounds = Annotated[int, typer.Option(min=1, help="of A B B A")]
Tolerance = Annotated[float, typer.Option(min=0.0, help="a change up to this share is none")]
Pid = Annotated[int | None, typer.Option(min=1, help="the server's first process, where it runs here: adds CPU time")]
ComparisonOutput = Annotated[
    Path | None, typer.Option(file_okay=False, help="folder for comparison.json and each visit's result.json")
]


@app.callback()
def bench() -> None:
    """Load on a server, and what it can take."""


@app.command()
def run(
    url: Url,
    model: Model,
    requests: Requests = 100,
    max_tokens: MaxTokens = "128",
    concurrency: Concurrency = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, rich_help_panel=ARRIVALS, help="requests/s; Poisson unless refined")
    ] = None,
    evenly: Annotated[
        bool, typer.Option("--evenly", rich_help_panel=ARRIVALS, help="with --rate: at equal intervals")
    ] = False,
    burstiness: Annotated[
        float | None,
        typer.Option(min=0.001, rich_help_panel=ARRIVALS, help="with --rate: gamma's shape; below 1 is burstier"),
    ] = None,
    rate_end: Annotated[
        float | None, typer.Option(min=0.001, rich_help_panel=ARRIVALS, help="with --rate: a ramp to this rate")
    ] = None,
    trace: Trace = None,
    speed: Annotated[
        float | None, typer.Option(min=0.001, rich_help_panel=ARRIVALS, help="with --trace: so many times as fast")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(exists=True, rich_help_panel=TEXTS, help="JSONL, or ShareGPT's JSON")
    ] = None,
    prompt_tokens: PromptTokens = None,
    prefix_tokens: Annotated[
        int, typer.Option(min=0, rich_help_panel=TEXTS, help="so many first tokens are shared between prompts")
    ] = 0,
    prefixes: Annotated[int, typer.Option(min=1, rich_help_panel=TEXTS, help="how many prefixes there are")] = 1,
    turns: Annotated[
        int, typer.Option(min=1, rich_help_panel=TEXTS, help="of a conversation, at most; with the real answers")
    ] = 1,
    endpoint: EndpointName = "chat",
    temperature: Annotated[float, typer.Option(min=0.0, rich_help_panel=TEXTS, help="of sampling; 0 is greedy")] = 0.0,
    ignore_eos: IgnoreEos = True,
    timings: Annotated[bool, typer.Option(help="ask for each request's stage times; as above")] = True,
    warmup: Warmup = 0,
    seed: Seed = 0,
    deadline: Deadline = 600.0,
    processes: Processes = 1,
    api_key: ApiKey = None,
    slo: Slo = None,
    output: Output = None,
) -> None:
    """Put load on a server, show what came of it, and say whether the objectives are met."""
    with told():
        spec = Spec(
            url=url,
            model=model,
            load=options.load(
                concurrency, rate, trace, evenly=evenly, burstiness=burstiness, rate_end=rate_end, speed=speed
            ),
            requests=requests,
            endpoint=endpoint,
            prompts=options.prompts(prompts, prompt_tokens, prefix_tokens, prefixes, turns),
            output=options.lengths(max_tokens),
            warmup=warmup,
            seed=seed,
            api_key=api_key,
            deadline_s=deadline,
            processes=processes,
            ignore_eos=ignore_eos,
            include_timings=timings,
            temperature=temperature,
        )
        from bench.run import command

        code = command.execute(spec, slo, output)
    raise typer.Exit(code)


@app.command()
def compare(
    url_a: Annotated[str, typer.Argument(help="the server to hold on to")],
    url_b: Annotated[str, typer.Argument(help="the server that is held to it")],
    model: Model,
    requests: Requests = 200,
    max_tokens: MaxTokens = "128",
    concurrency: Concurrency = None,
    rate: Annotated[float | None, typer.Option(min=0.001, rich_help_panel=ARRIVALS, help="requests/s, Poisson")] = None,
    trace: Trace = None,
    prompt_tokens: PromptTokens = None,
    endpoint: EndpointName = "chat",
    ignore_eos: IgnoreEos = True,
    warmup: Warmup = 16,
    seed: Seed = 0,
    deadline: Deadline = 600.0,
    processes: Processes = 1,
    api_key: ApiKey = None,
    pid_a: Pid = None,
    pid_b: Pid = None,
    rounds: Rounds = 2,
    tolerance: Tolerance = 0.05,
    output: ComparisonOutput = None,
) -> None:
    """Put the same load on two servers in turn (A B B A a round), and say by each measure whether the second holds."""
    with told():
        spec = Spec(
            url=url_a,
            model=model,
            load=options.load(concurrency, rate, trace),
            requests=requests,
            endpoint=endpoint,
            prompts=options.prompts(None, prompt_tokens, 0, 1, 1),
            output=options.lengths(max_tokens),
            warmup=warmup,
            seed=seed,
            api_key=api_key,
            deadline_s=deadline,
            processes=processes,
            ignore_eos=ignore_eos,
            include_timings=False,
        )
        from bench.regression import check as regression
        from bench.regression.pairs import Side

        a, b = Side("A", spec, pid_a), Side("B", replace(spec, url=url_b), pid_b)
        code = regression.compare(a, b, rounds=rounds, tolerance=tolerance, folder=output)
    raise typer.Exit(code)


@app.command()
def check(
    baseline: Annotated[Path, typer.Option(exists=True, help="result.json of an earlier run, or its folder")],
    url: Url,
    baseline_url: Annotated[
        str | None, typer.Option(help="a server as it was then, to be visited in turn with the other: the real proof")
    ] = None,
    api_key: ApiKey = None,
    pid: Pid = None,
    baseline_pid: Pid = None,
    rounds: Rounds = 2,
    tolerance: Tolerance = 0.05,
    output: ComparisonOutput = None,
) -> None:
    """Put a recorded run's load on a server, and say by each measure whether it holds."""
    with told():
        from bench.regression import check as regression
        from bench.regression import recorded
        from bench.regression.pairs import Side

        result = recorded.load(baseline)
        now = Side("now", recorded.spec(result, url, api_key), pid)
        if baseline_url is None:
            code = regression.check(result, now, rounds=rounds, tolerance=tolerance, folder=output)
        else:
            then = Side("baseline", recorded.spec(result, baseline_url, api_key), baseline_pid)
            code = regression.compare(then, now, rounds=rounds, tolerance=tolerance, folder=output)
    raise typer.Exit(code)


@app.command()
def capacity(
    url: Url,
    model: Model,
    slo: Annotated[str, typer.Option(help="limits, as in 'ttft_p99<1s,tpot_p99<200ms'; error_rate<1% unless given")],
    low: Annotated[float | None, typer.Option(min=0.001, help="no rate below this one, in requests/s")] = None,
    high: Annotated[float | None, typer.Option(min=0.001, help="no rate above this one")] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="how long each run's arrivals last at least")] = 60.0,
    requests: Annotated[int, typer.Option(min=1, help="how many requests each run has at least")] = 100,
    width: Annotated[float, typer.Option(min=0.01, help="between the rates at both sides of the edge")] = 0.05,
    repeat: Annotated[int, typer.Option(min=1, help="runs at each of those, with seeds of their own")] = 3,
    max_tokens: MaxTokens = "128",
    prompts: Annotated[
        Path | None, typer.Option(exists=True, rich_help_panel=TEXTS, help="JSONL, or ShareGPT's JSON")
    ] = None,
    prompt_tokens: PromptTokens = None,
    prefix_tokens: Annotated[
        int, typer.Option(min=0, rich_help_panel=TEXTS, help="so many first tokens are shared between prompts")
    ] = 0,
    endpoint: EndpointName = "chat",
    ignore_eos: IgnoreEos = True,
    timings: Annotated[bool, typer.Option(help="ask for each request's stage times; as above")] = True,
    seed: Seed = 0,
    deadline: Deadline = 600.0,
    processes: Processes = 1,
    api_key: ApiKey = None,
    output: Annotated[
        Path | None, typer.Option(file_okay=False, help="folder for capacity.json, report.html and each run's result")
    ] = None,
) -> None:
    """Find the highest rate of Poisson arrivals that a server takes within its objectives, and what gives there."""
    with told():
        from bench.run.spec import Open
        from bench.search import command
        from bench.search.capacity import Search, wanted

        spec = Spec(
            url=url,
            model=model,
            load=Open("poisson"),
            requests=requests,
            endpoint=endpoint,
            prompts=options.prompts(prompts, prompt_tokens, prefix_tokens, 1, 1),
            output=options.lengths(max_tokens),
            seed=seed,
            api_key=api_key,
            deadline_s=deadline,
            processes=processes,
            ignore_eos=ignore_eos,
            include_timings=timings,
        )
        search = Search(spec, wanted(slo), low, high, seconds, requests, width, repeat)
        code = command.execute(search, output)
    raise typer.Exit(code)


@contextmanager
def told(command: str = "bench") -> Iterator[None]:
    """What can't be done as asked, in a line and with exit code 2."""
    try:
        yield
    except (SpecError, Lost, OSError) as error:
        typer.echo(f"streamgauge {command}: {error}", err=True)
        raise typer.Exit(2) from None
