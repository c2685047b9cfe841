"""Streamgauge against stock vLLM, end to end: the same model, the same load, in turn, in one run.

    python -m bench.compare_stock --model smollm2-135m --stock-python OTHER_VENV/bin/python

Three arms:

* `ours`: this project's server (`--ours-command`);
* `stock`: vLLM's own server with vLLM's defaults, in a clean environment;
* `matched`: vLLM's own server with our engine's arguments and environment, as `--engine-command` prints them.

`--stock-python` is the interpreter of an environment with the same vLLM but *without this project installed*: its
entry points would load into stock vLLM. Where there is none, `--allow-same-env` takes ours with vLLM's plugins off.

A round visits every arm twice, in the order A B C C B A, and every visit starts its server anew. What comes of it are
ratios per round, and beside them the A/A width: by how much two visits of one arm in one round differ.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import loop
from bench.arms import HOST, Arm, ArmError, Running, running, served_model
from bench.bodies import chat_body
from bench.compare_arms import (
    ARM_NAMES,
    ArmOptions,
    ComparisonError,
    Environment,
    add_stock_python,
    build_arms,
    check_stock,
    describe,
)
from bench.compare_report import Visit, ratios, table
from bench.load import Target, run_closed_loop
from bench.procfs import machine, process_cpu, tree_cpu

PATH = "/v1/chat/completions"


def visiting_order(arms: Sequence[Arm], rounds: int) -> list[tuple[int, int, Arm]]:
    """(round, position, arm): A B C C B A in every round."""
    return [(turn, place, arm) for turn in range(rounds) for place, arm in enumerate([*arms, *reversed(arms)])]


class Comparison:
    """Visits the arms and keeps what they came to; `result.json` is rewritten after each."""

    def __init__(self, arms: Sequence[Arm], args: argparse.Namespace, facts: dict[str, object]) -> None:
        self.visits: list[Visit] = []
        self.errors: list[str] = []
        self._arms = arms
        self._args = args
        self._facts = facts

    async def run(self) -> None:
        for turn, place, arm in visiting_order(self._arms, self._args.rounds):
            try:
                self.visits.append(await self._visit(turn, place, arm))
                figures = self.visits[-1].as_dict()["figures"]
                print(f"round {turn} {arm.name}: {json.dumps(figures)}", file=sys.stderr, flush=True)
            except (ArmError, OSError) as error:
                self.errors.append(str(error))
                print(f"round {turn} {arm.name}: {error}", file=sys.stderr, flush=True)
            self.save()

    async def _visit(self, turn: int, place: int, arm: Arm) -> Visit:
        args = self._args
        log = args.out / f"round{turn}-{place}-{arm.name}.log"
        async with running(arm, log, ready_deadline_s=args.ready_deadline, stop_deadline_s=args.stop_deadline) as up:
            body = chat_body(await served_model(up.port), max_tokens=args.max_tokens, prompt_words=args.prompt_words)
            target = Target(HOST, up.port, PATH, body, deadline_s=args.request_deadline)
            await run_closed_loop(target.send, concurrency=args.concurrency, requests=args.warmup)
            return await self._measure(turn, place, arm, up, target)

    async def _measure(self, turn: int, place: int, arm: Arm, up: Running, target: Target) -> Visit:
        args = self._args
        api, tree, client = process_cpu(up.pid), tree_cpu(up.pid), time.process_time_ns()
        result = await run_closed_loop(
            target.send, concurrency=args.concurrency, requests=args.requests, first=args.warmup
        )
        return Visit(
            round=turn,
            position=place,
            arm=arm.name,
            ready_s=up.ready_s,
            wall_ns=result.wall_ns,
            samples=result.samples,
            api_cpu=process_cpu(up.pid) - api,
            tree_cpu=tree_cpu(up.pid) - tree,
            client_cpu_ns=time.process_time_ns() - client,
        )

    def save(self) -> None:
        found = ratios(self.visits)
        result = {
            **self._facts,
            "errors": self.errors,
            "ratios": {
                other: {name: ratio.as_dict() for name, ratio in by_name.items()} for other, by_name in found.items()
            },
            "visits": [visit.as_dict() for visit in self.visits],
        }
        (self._args.out / "result.json").write_text(json.dumps(result, indent=1))


def facts(args: argparse.Namespace, arms: Sequence[Arm], ours: Environment, stock: Environment) -> dict[str, object]:
    return {
        **load_facts(args, arms),
        "environments": {"ours": ours.as_dict(), "stock": stock.as_dict(), "same": ours.prefix == stock.prefix},
    }


def load_facts(args: argparse.Namespace, arms: Sequence[Arm]) -> dict[str, object]:
    load = ("concurrency", "max_tokens", "requests", "warmup", "prompt_words", "rounds")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load": {name: getattr(args, name) for name in load},
        "arms": {arm.name: {"argv": list(arm.argv), "env": dict(arm.env)} for arm in arms},
    }


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare_stock",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="smollm2-135m", help="as our server knows it")
    parser.add_argument("--stock-model", help="as vLLM knows it; default: the model's folder in our store")
    parser.add_argument("--arms", default=",".join(ARM_NAMES), help="comma-separated, in visiting order")
    parser.add_argument("--rounds", type=int, default=2)

    parser.add_argument("--ours-command", default="{python} -m server serve {model} --port {port}")
    parser.add_argument("--ours-health", default="/health", help="answers 200 once our server is ready")
    parser.add_argument("--engine-command", default="{python} -m server config engine-command")
    add_stock_python(parser)
    parser.add_argument(
        "--stock-arg", action="append", default=[], help="for both stock arms; give it as --stock-arg=X"
    )
    parser.add_argument("--allow-same-env", action="store_true", help="stock may share our environment, plugins off")
    parser.add_argument("--null-executor", action="store_true", help="stock arms run no model (bench.null_executor)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for every arm")
    add_load_options(parser)
    parser.add_argument("--out", type=Path, default=Path("compare-stock"), help="folder for result.json and the logs")
    return parser.parse_args(argv)


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """What `Comparison` asks of each arm."""
    parser.add_argument("--concurrency", type=int, default=32, help="streams at a time")
    parser.add_argument("--max-tokens", type=int, default=128, help="per stream, exactly")
    parser.add_argument("--requests", type=int, default=128, help="measured per visit")
    parser.add_argument("--warmup", type=int, default=32, help="requests before those")
    parser.add_argument("--prompt-words", type=int, default=48)
    parser.add_argument("--request-deadline", type=float, default=600.0)
    parser.add_argument("--ready-deadline", type=float, default=600.0)
    parser.add_argument("--stop-deadline", type=float, default=60.0)


def arm_names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(ARM_NAMES):
        raise ComparisonError(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(ARM_NAMES)}")
    return names


def arm_options(args: argparse.Namespace) -> ArmOptions:
    return ArmOptions(
        model=args.model,
        stock_model=args.stock_model,
        ours_command=args.ours_command,
        ours_health=args.ours_health,
        engine_command=args.engine_command,
        stock_python=args.stock_python,
        stock_args=tuple(args.stock_arg),
        null_executor=args.null_executor,
        allow_same_env=args.allow_same_env,
        extra_env=dict(setting.split("=", 1) for setting in args.env),
    )


def prepare(args: argparse.Namespace, scratch: Path) -> Comparison:
    options = arm_options(args)
    ours, stock = describe(sys.executable, scratch), describe(args.stock_python, scratch)
    names = arm_names(args.arms)
    if names != ["ours"]:
        check_stock(options, ours, stock)
    arms = build_arms(options, names, scratch)
    args.out.mkdir(parents=True, exist_ok=True)
    return Comparison(arms, args, facts(args, arms, ours, stock))


def main() -> int:
    args = parse()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            comparison = prepare(args, Path(scratch))
        except ComparisonError as error:
            print(error, file=sys.stderr)
            return 2
        loop.run(comparison.run())
    print(table(comparison.visits))
    print(f"\nraw figures: {args.out / 'result.json'}")
    return 1 if comparison.errors else 0


if __name__ == "__main__":
    sys.exit(main())
