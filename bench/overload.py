"""What overload does to goodput: our server, stock vLLM, and stock vLLM with a bounded queue, under the same arrivals.

    python -m bench.overload --output DIR --stock-python OTHER_VENV/bin/python

Capacity is what stock vLLM completes per second in a closed loop at its best concurrency, and is measured first; where
`stock` is not among the arms, the first arm stands in for it.

At each offered load every arm answers the same requests at the same times, by Poisson arrivals and mixed lengths.
Arms take turns load by load, in an order reversed from one load to the next and from one round to the next, and start
anew at each turn. A start costs half a minute, one in six of a run; in return what is compared was measured minutes
apart, and nothing learned, cached or queued is carried from one point into another.

Latencies count from the scheduled arrival. A client gives up after TTFT + longest answer x TPOT objective, when its
request can't be good any more, and a little. A point whose generator was late is marked and left out of the verdicts.
The machine should do nothing else: what others took of it stands beside each point.

`--step`, `--refusals` and `--fairness` add their scenarios, on our server alone; `--rates ''` leaves out the curve.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench import loop
from bench.compare_arms import CHECKOUT, ArmOptions, ComparisonError, add_stock_python, check_stock, describe
from bench.overload_arms import ARM_NAMES, OURS, Garage, overload_arms, settings_flags
from bench.overload_html import html_report
from bench.overload_plan import Lengths, Workload
from bench.overload_point import Objectives
from bench.overload_report import text_report
from bench.overload_results import Results
from bench.overload_run import Overload, Settings
from bench.overload_verdicts import verdicts
from bench.procfs import machine

OURS_COMMAND = "{python} -m server serve {model} --port {port}"
ENGINE_COMMAND = "{python} -m server config engine-command"
PROMPT_SIGMA, OUTPUT_SIGMA = 0.9, 0.7
DEADLINE_MARGIN_S = 5.0


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",") if part]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.overload", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for result.json, report.html and the logs")
    parser.add_argument("--arms", default=",".join(ARM_NAMES), help="comma-separated")
    parser.add_argument("--rates", type=numbers, default="0.5,0.8,1,1.5,2,3", help="multiples of capacity")
    parser.add_argument("--rounds", type=int, default=1, help="from two on, there is an A/A width")
    parser.add_argument("--seconds", type=float, default=120.0, help="each point lasts at least as long")
    parser.add_argument("--arrivals", type=int, default=300, help="each point has at least as many")
    parser.add_argument("--warmup", type=float, default=30.0, help="seconds of the point's load ahead of it")
    parser.add_argument("--ttft", type=float, default=1.0, help="objective in seconds, from the scheduled arrival")
    parser.add_argument("--tpot", type=float, default=0.2, help="objective in seconds")
    parser.add_argument("--prompt-tokens", default="16,64,1024", metavar="LEAST,MEDIAN,MOST")
    parser.add_argument("--output-tokens", default="8,32,256", metavar="LEAST,MEDIAN,MOST")
    parser.add_argument("--seed", type=int, default=1)

    parser.add_argument("--capacity", type=float, help="requests/s, instead of measuring; needs --prefill-rate")
    parser.add_argument("--prefill-rate", type=float, default=0.0, help="prompt tokens/s, for stock-queue")
    parser.add_argument("--concurrencies", type=numbers, default="16,32,64", help="of the closed loop")
    parser.add_argument("--capacity-seconds", type=float, default=60.0, help="per concurrency")

    parser.add_argument("--step", action="store_true", help="the controller on 0.5 -> 2 -> 0.5 x capacity")
    parser.add_argument("--step-seconds", type=float, default=90.0, help="per phase")
    parser.add_argument("--refusals", action="store_true", help="CPU and latency of refusals")
    parser.add_argument("--burst", type=int, default=500, help="refusals at once")
    parser.add_argument("--refusal-rate", type=float, default=100.0, help="refusals per second, then")
    parser.add_argument("--refusal-seconds", type=float, default=15.0)
    parser.add_argument("--fairness", action="store_true", help="one key floods, another asks once a second")
    parser.add_argument("--flood-connections", type=int, default=128)
    parser.add_argument("--fairness-seconds", type=float, default=120.0, help="alone, and again beside the flood")

    parser.add_argument("--model", default="smollm2-135m", help="as our server knows it")
    parser.add_argument("--config", type=Path, default=CHECKOUT / "configs" / "bench" / "overload.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="over the settings")
    parser.add_argument("--ours-command", default=OURS_COMMAND, help="settings are appended")
    add_stock_python(parser)
    parser.add_argument("--stock-arg", action="append", default=[], help="for both stock arms; as --stock-arg=X")
    parser.add_argument("--allow-same-env", action="store_true", help="stock may share our environment, plugins off")
    parser.add_argument("--ready-deadline", type=float, default=300.0)
    parser.add_argument("--stop-deadline", type=float, default=60.0)
    return parser.parse_args(argv)


def lengths(text: str, sigma: float) -> Lengths:
    try:
        least, median, most = (int(part) for part in text.split(","))
    except ValueError:
        raise ComparisonError(f"expected LEAST,MEDIAN,MOST, not {text}") from None
    return Lengths(least, median, most, sigma)


def run_settings(args: argparse.Namespace) -> Settings:
    objectives = Objectives(args.ttft, args.tpot)
    workload = Workload(lengths(args.prompt_tokens, PROMPT_SIGMA), lengths(args.output_tokens, OUTPUT_SIGMA), args.seed)
    return Settings(
        workload=workload,
        objectives=objectives,
        factors=args.rates,
        rounds=args.rounds,
        seconds=args.seconds,
        arrivals=args.arrivals,
        warmup_s=args.warmup,
        seed=args.seed,
        capacity=args.capacity,
        prefill_rate=args.prefill_rate,
        concurrencies=[int(each) for each in args.concurrencies],
        capacity_seconds=args.capacity_seconds,
        step_seconds=args.step_seconds if args.step else None,
        refusals=(args.burst, args.refusal_rate, args.refusal_seconds) if args.refusals else None,
        fairness=(args.flood_connections, args.fairness_seconds) if args.fairness else None,
    )


def prepare(args: argparse.Namespace, scratch: Path) -> Overload:
    """Raises ComparisonError for what can't be run as asked."""
    settings = run_settings(args)
    names = arm_names(args.arms)
    options = arm_options(args, settings.objectives)
    ours, stock = describe(sys.executable, scratch), describe(args.stock_python, scratch)
    if set(names) - {OURS}:
        check_stock(options, ours, stock)
    arms = overload_arms(options, names, scratch)
    args.output.mkdir(parents=True, exist_ok=True)
    facts: dict[str, object] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "environments": {"ours": ours.as_dict(), "stock": stock.as_dict()},
        "objectives": asdict(settings.objectives),
        "settings": asdict(settings),
        "arms": {name: {"argv": list(arm.argv), "env": dict(arm.env)} for name, arm in arms.items()},
    }
    patience = args.ttft + settings.workload.output.most * args.tpot + DEADLINE_MARGIN_S
    garage = Garage(args.output, args.model, args.ready_deadline, args.stop_deadline, patience)
    return Overload(arms, settings, garage, Results(facts), lambda results: save(args.output, results))


def arm_names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(ARM_NAMES):
        raise ComparisonError(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(ARM_NAMES)}")
    return names


def arm_options(args: argparse.Namespace, objectives: Objectives) -> ArmOptions:
    flags = settings_flags(args.config, objectives, args.set)
    return ArmOptions(
        model=args.model,
        stock_model=None,
        ours_command=f"{args.ours_command} {flags}",
        ours_health="/health",
        engine_command=f"{ENGINE_COMMAND} {flags}",
        stock_python=args.stock_python,
        stock_args=tuple(args.stock_arg),
        null_executor=False,
        allow_same_env=args.allow_same_env,
        extra_env={},
    )


def save(output: Path, results: Results) -> None:
    """After every point, so that a run that is cut short leaves what it had."""
    whole = {"verdicts": [verdict.as_dict() for verdict in verdicts(results)], **results.as_dict()}
    (output / "result.json").write_text(json.dumps(whole))
    (output / "report.html").write_text(html_report(results))


def main() -> int:
    args = parse()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            overload = prepare(args, Path(scratch))
        except ComparisonError as error:
            print(error, file=sys.stderr)
            return 2
        try:
            loop.run(overload.run())
        except KeyboardInterrupt:
            overload.results.errors.append("interrupted")
    print(text_report(overload.results))
    print(f"\n{args.output / 'report.html'}; raw samples: {args.output / 'result.json'}")
    return 1 if overload.results.errors else 0


if __name__ == "__main__":
    sys.exit(main())
