"""Front ends without a model in the way: ours, stock vLLM's and the floor, in turn, in one run.

    python -m bench.frontend --output DIR --stock-python OTHER_VENV/bin/python

Arms, of which the first three run vLLM's engine over `bench.null_executor`, with the same arguments and environment:

* `ours`: this project's server;
* `stock`, `stock-nostats`: vLLM's own server, the latter with `--disable-log-stats`;
* `asgi`, `protocol`: the floor (`bench.frontend_floor`), which writes the bytes of one of our streams again.

`--kind` is what is asked for: plain chat, log probabilities, a stop string, four answers, or a tool call that streams.
A round visits every arm twice (A B C D E E D C B A). A visit starts its server anew and measures it at each number of
streams. `--stock-python` is the interpreter of an environment with the same vLLM but without this project installed,
whose entry points would load into stock vLLM; the entry points that it does have are printed.

Ours alone is asked for its stage times, from which "engine stamp → socket" comes; that is part of its cost.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from bench import loop
from bench.arms import HOST, Arm, ArmError, Running, running, served_model
from bench.bodies import chat_body
from bench.compare_arms import (
    CHECKOUT,
    MATCHED,
    NULL_EXECUTOR,
    OURS,
    ArmOptions,
    ComparisonError,
    add_stock_python,
    build_arms,
    check_stock,
    clean_env,
    describe,
)
from bench.compare_stock import PATH, Comparison, facts, visiting_order
from bench.frontend_kinds import KINDS
from bench.frontend_recording import Recording, record
from bench.frontend_report import figures, table
from bench.load import Target, run_closed_loop

STOCK, NO_STATS = STOCK_ARMS = ("stock", "stock-nostats")
FLOORS = ("asgi", "protocol")
ARM_NAMES = (OURS, *STOCK_ARMS, *FLOORS)

ENTRY_POINTS = """
import importlib.metadata as m, json
found = [e for d in m.distributions() for e in d.entry_points if e.group.startswith("vllm.")]
print(json.dumps(sorted({f"{e.group}: {e.name} = {e.value}" for e in found})))
"""


class AtStreams(Comparison):
    """The visits at one number of streams. Their servers are started by `FrontEnds`."""

    async def visit(self, turn: int, place: int, arm: Arm, up: Running) -> None:
        args = self._args
        target = Target(HOST, up.port, PATH, await body_for(arm, up, args), deadline_s=args.request_deadline)
        await run_closed_loop(target.send, concurrency=args.concurrency, requests=args.warmup)
        self.visits.append(await self._measure(turn, place, arm, up, target))
        self.save()


async def body_for(arm: Arm, up: Running, args: argparse.Namespace) -> Callable[[int], bytes]:
    body = chat_body(await served_model(up.port), max_tokens=args.max_tokens, prompt_words=args.prompt_words)
    more = {**KINDS[args.kind].fields, **({"include_timings": True} if arm.name == OURS else {})}
    return lambda number: orjson.dumps({**orjson.loads(body(number)), **more})


class FrontEnds:
    """Visits the arms; `points` has, by number of streams, what came of it. An arm that fails is noted in `errors`."""

    def __init__(self, arms: Sequence[Arm], args: argparse.Namespace, points: Mapping[int, AtStreams]) -> None:
        self.arms = arms
        self.points = points
        self.errors: list[str] = []
        self._args = args

    async def run(self) -> None:
        for turn, place, arm in visiting_order(self.arms, self._args.rounds):
            print(f"round {turn}, {arm.name} ...", file=sys.stderr, flush=True)
            try:
                await self._visit(turn, place, arm)
            except (ArmError, OSError) as error:
                self.errors.append(f"round {turn}, {arm.name}: {error or type(error).__name__}")
                print(self.errors[-1], file=sys.stderr, flush=True)

    async def _visit(self, turn: int, place: int, arm: Arm) -> None:
        args = self._args
        log = args.output / f"round{turn}-{place}-{arm.name}.log"
        async with running(arm, log, ready_deadline_s=args.ready_deadline, stop_deadline_s=args.stop_deadline) as up:
            if arm.name == OURS and not recording_path(args).exists():
                await self._record(arm, up)
            for point in self.points.values():
                await point.visit(turn, place, arm, up)

    async def _record(self, ours: Arm, up: Running) -> None:
        args = self._args
        body = await body_for(ours, up, args)
        # Beyond the numbers of the measured requests, with whose prompts it shares nothing.
        writes = await record(up.port, PATH, body(1_000_000), args.request_deadline)
        Recording.of(writes, args.max_tokens).save(recording_path(args))


def recording_path(args: argparse.Namespace) -> Path:
    path: Path = args.output / "stream.json"
    return path


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.frontend", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the figures and the logs")
    parser.add_argument("--arms", default=",".join(ARM_NAMES), help="comma-separated, in visiting order")
    parser.add_argument("--streams", type=numbers, default="16,64,256", help="at a time")
    parser.add_argument("--kind", default="plain", choices=KINDS, help="of request")
    parser.add_argument("--step-ms", type=float, default=20.0, help="of an engine step")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=128, help="per stream, exactly")
    parser.add_argument("--answers", type=int, default=2, help="measured answers per stream, after one that is not")
    parser.add_argument("--prompt-words", type=int, default=48)

    parser.add_argument("--model", default="smollm2-135m", help="as our server knows it; only its tokenizer is used")
    parser.add_argument("--ours-command", default="{python} -m server serve {model} --port {port}")
    parser.add_argument("--engine-command", default="{python} -m server config engine-command {model}")
    add_stock_python(parser)
    parser.add_argument("--stock-arg", action="append", default=[], help="for both stock arms; as --stock-arg=X")
    parser.add_argument("--allow-same-env", action="store_true", help="stock may share our environment, plugins off")
    parser.add_argument("--request-deadline", type=float, default=600.0)
    parser.add_argument("--ready-deadline", type=float, default=600.0)
    parser.add_argument("--stop-deadline", type=float, default=60.0)
    return parser.parse_args(argv)


def arm_names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(ARM_NAMES):
        raise ComparisonError(f"no such arm: {', '.join(sorted(unknown))}; there are {', '.join(ARM_NAMES)}")
    if set(names) & set(FLOORS) and names[0] != OURS:
        raise ComparisonError(f"the floor writes what {OURS} wrote: {OURS} comes first")
    return names


def arm_options(args: argparse.Namespace) -> ArmOptions:
    kind = KINDS[args.kind]
    settings = (
        f"engine.args.distributed_executor_backend={NULL_EXECUTOR}",
        f"engine.args.max_num_seqs={max(args.streams)}",  # all streams in one batch
        *kind.settings,
    )
    said = {} if kind.text is None else {"STREAMGAUGE_NULL_TEXT": kind.text}
    flags = shlex.join(word for setting in settings for word in ("--set", setting))
    return ArmOptions(
        model=args.model,
        stock_model=None,
        ours_command=f"{args.ours_command} {flags}",
        ours_health="/health",
        engine_command=f"{args.engine_command} {flags}",
        stock_python=args.stock_python,
        stock_args=(*kind.flags, *args.stock_arg),
        null_executor=True,
        allow_same_env=args.allow_same_env,
        extra_env={"STREAMGAUGE_NULL_STEP_MS": f"{args.step_ms:g}", **said},
    )


def frontend_arms(options: ArmOptions, names: Sequence[str], scratch: Path, args: argparse.Namespace) -> list[Arm]:
    found: dict[str, Arm] = {}
    if OURS in names:
        [found[OURS]] = build_arms(options, [OURS], scratch)
    if set(STOCK_ARMS) & set(names):
        [matched] = build_arms(options, [MATCHED], scratch)
        found[STOCK] = replace(matched, name=STOCK)
        found[NO_STATS] = replace(matched, name=NO_STATS, argv=(*matched.argv, "--disable-log-stats"))
    return [found[name] if name in found else _floor(name, args) for name in names]


def _floor(kind: str, args: argparse.Namespace) -> Arm:
    replay = ("--streams", str(recording_path(args).resolve()), "--step-ms", f"{args.step_ms:g}")
    argv = (sys.executable, "-m", "bench.frontend_floor", kind, "--port", "{port}", *replay)
    return Arm(kind, argv, clean_env(), CHECKOUT)


def entry_points(python: str, cwd: Path) -> list[str]:
    """What vLLM loads by itself in that environment. `cwd` must be empty, as for `describe`."""
    argv = [python, "-c", ENTRY_POINTS]
    done = subprocess.run(argv, cwd=cwd, env=clean_env(), capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise ComparisonError(f"{python} doesn't tell its entry points:\n{done.stderr[-2000:]}")
    found: list[str] = json.loads(done.stdout)
    return found


def prepare(args: argparse.Namespace, scratch: Path) -> FrontEnds:
    """Raises ComparisonError for what can't be run as asked."""
    names, options = arm_names(args.arms), arm_options(args)
    ours, stock = describe(sys.executable, scratch), describe(args.stock_python, scratch)
    plugins: list[str] = []
    if set(STOCK_ARMS) & set(names):
        plugins = entry_points(args.stock_python, scratch)
        print(f"vLLM's entry points for the stock arms: {'; '.join(plugins) or 'none'}", flush=True)
        check_stock(options, ours, stock)
    arms = frontend_arms(options, names, scratch, args)
    args.output.mkdir(parents=True, exist_ok=True)
    recording_path(args).unlink(missing_ok=True)
    more = {"step_ms": args.step_ms, "stock_entry_points": plugins}
    loads = {streams: at_streams(args, streams) for streams in args.streams}
    points = {n: AtStreams(arms, load, {**facts(load, arms, ours, stock), **more}) for n, load in loads.items()}
    return FrontEnds(arms, args, points)


def at_streams(args: argparse.Namespace, streams: int) -> argparse.Namespace:
    """As `Comparison` wants them."""
    out = args.output / f"streams-{streams}"
    out.mkdir(exist_ok=True)
    at_once = max(streams // KINDS[args.kind].sequences, 1)
    load = {"concurrency": at_once, "requests": args.answers * at_once, "warmup": at_once, "out": out}
    return argparse.Namespace(**{**vars(args), **load})


def settings_of(arm: Arm) -> str:
    """The command, behind what its environment has of its own."""
    own = {name: value for name, value in arm.env.items() if clean_env().get(name) != value}
    return shlex.join([*(f"{name}={value}" for name, value in own.items()), *arm.argv])


def report(front_ends: FrontEnds, step_ms: float) -> str:
    parts = [
        f"{streams} streams, one step per {step_ms:g} ms\n\n{table(point.visits)}"
        for streams, point in front_ends.points.items()
        if point.visits
    ]
    return "\n\n".join([*parts, "\n".join(f"{arm.name}: {settings_of(arm)}" for arm in front_ends.arms)])


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            front_ends = prepare(args, Path(scratch))
        except ComparisonError as error:
            print(error, file=sys.stderr)
            return 2
        loop.run(front_ends.run())
    found = {str(streams): figures(point.visits) for streams, point in front_ends.points.items()}
    (args.output / "frontend.json").write_text(json.dumps({"errors": front_ends.errors, "figures": found}, indent=1))
    print(report(front_ends, args.step_ms))
    print(f"\nfigures: {args.output / 'frontend.json'}; raw samples: result.json in each folder beside it")
    return 1 if front_ends.errors else 0


if __name__ == "__main__":
    sys.exit(main())
