"""The `streamgauge` command."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import yaml

from bench.cli import app as bench
from bench.tune.cli import tune
from server import config
from server.config import ConfigError
from server.engine.model_store import ModelStore, ModelStoreError
from server.engine.quantized_weights import Precision
from server.engine.runtime import detect_device
from server.errors import ServeError
from server.ingress import key_file
from server.ingress.key import Priority, Scope
from server.telemetry import log

T = TypeVar("T")

app = typer.Typer(help="An LLM token-streaming server that measures every stage.", no_args_is_help=True)
models = typer.Typer(help="Models this machine has or can get.", no_args_is_help=True)
settings_commands = typer.Typer(help="The settings as they come out.", no_args_is_help=True)
app.add_typer(models, name="models")
app.add_typer(settings_commands, name="config")
keys = typer.Typer(help="Who may call: the keys of keys.file.", no_args_is_help=True)
app.add_typer(keys, name="keys")
app.add_typer(bench, name="bench")

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML file; default: configs/cpu.yaml or configs/gpu.yaml by the device")
]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="may be repeated")]
KeyFile = Annotated[Path | None, typer.Option("--file", help="the key file; default: keys.file of the settings")]
Count = Annotated[int | None, typer.Option(min=1)]
PRECISION = "of a known model's weights: int8 is faster where the engine is compiled, and a little less exact"
PrecisionName = Annotated[Precision, typer.Option(help=PRECISION)]
PrecisionChoice = Annotated[Precision | None, typer.Option(help=PRECISION)]
ModelName = Annotated[str | None, typer.Argument(help="a known name, a local folder or a Hugging Face id")]


@app.command()
def serve(
    model: ModelName = None,
    config_file: ConfigFile = None,
    host: Annotated[str | None, typer.Option()] = None,
    port: Annotated[int | None, typer.Option()] = None,
    api_key: Annotated[str | None, typer.Option(help="one key with every scope; better: STREAMGAUGE_API_KEY")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="serve other machines without any key")] = False,
    precision: PrecisionChoice = None,
    assignments: Assignments = None,
) -> None:
    """Serve MODEL over HTTP until SIGTERM or Ctrl-C."""
    log.open_standard_streams()
    flags = {"engine.model": model, "http.host": host, "http.port": port}
    flags |= {"engine.precision": precision, "keys.api_key": api_key, "keys.insecure": insecure or None}
    settings = _load(config_file, assignments, flags)
    _told(lambda: ModelStore().resolve(settings.engine.model, settings.engine.precision))
    import uvloop  # here, so that --help stays quick

    from server.serve import serve as run

    log.configure(settings.telemetry.log, settings.telemetry.log_level)
    code = _told(lambda: uvloop.run(run(settings)))
    # Everything is closed by now. Skipping interpreter teardown spares the operator the leak reports that compiled
    # extensions of torch print there, and a hang should one of their threads not end.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a full disk
            stream.flush()
    os._exit(code)


@app.command()
def doctor(
    model: ModelName = None,
    config_file: ConfigFile = None,
    profile_steps: Annotated[
        int | None, typer.Option(min=2, max=100_000, help="load the engine and show where this many steps went")
    ] = None,
    streams: Annotated[int, typer.Option(min=1, max=4096, help="sequences at once, for --profile-steps")] = 32,
    assignments: Assignments = None,
) -> None:
    """What this machine has for the engine, and with --profile-steps where its time goes."""
    settings = _load(config_file, assignments, {"engine.model": model})
    from rich.console import Console  # here, so that --help stays quick

    from server import doctor as examination

    console = Console()
    console.print(examination.findings_table(examination.look(settings)))
    if profile_steps is None:
        return
    if not settings.telemetry.steps or settings.engine.kind == "scripted":
        _exit("--profile-steps needs engine.kind=vllm and telemetry.steps=true")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # vLLM reads it when it is imported
    try:
        steps = asyncio.run(examination.profile(settings, profile_steps, streams))
    except (ModelStoreError, ServeError, TimeoutError) as error:
        _exit(f"the engine could not be profiled: {error or type(error).__name__}")
    console.print(examination.summary(steps))
    console.print(examination.steps_table(steps))


app.command()(tune)


@models.command("list")
def list_models() -> None:
    """Known models, and which are here."""
    for stored in ModelStore().list():
        here = f"{stored.size_bytes / 1e6:.0f} MB in {stored.path}" if stored.pulled else "not pulled"
        typer.echo(f"{stored.known.name}\t{stored.known.title}\t{stored.known.license}\t{here}")


@models.command()
def pull(name: str, precision: PrecisionName = "bf16") -> None:
    """Fetch and convert a known model; does nothing when it is here."""
    typer.echo(_told(lambda: ModelStore().pull(name, lambda text: typer.echo(text, err=True), precision)))


@models.command()
def path(name: str, precision: PrecisionName = "bf16") -> None:
    """The folder of a pulled model."""
    typer.echo(_told(lambda: ModelStore().path(name, precision)))


@settings_commands.command()
def show(model: ModelName = None, config_file: ConfigFile = None, assignments: Assignments = None) -> None:
    """All settings, as YAML."""
    settings = _load(config_file, assignments, {"engine.model": model})
    typer.echo(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False), nl=False)


@settings_commands.command()
def check(config_file: ConfigFile = None, assignments: Assignments = None) -> None:
    """Exit with 0 when the settings can be used, else name the key."""
    _load(config_file, assignments, {})
    typer.echo("ok")


@settings_commands.command("engine-command")
def engine_command(model: ModelName = None, config_file: ConfigFile = None, assignments: Assignments = None) -> None:
    """vLLM's own server flags and the environment that equal these settings, as JSON; for comparisons.

    Logits processors of this project are left out: an environment with vLLM alone does not have them.
    """
    from server.app import engine_environment  # here, so that --help stays quick

    settings = _load(config_file, assignments, {"engine.model": model})
    source = _told(lambda: ModelStore().resolve(settings.engine.model, settings.engine.precision))
    argv = [flag for name, value in _without_ours(settings.engine.args).items() for flag in _vllm_flag(name, value)]
    typer.echo(json.dumps({"argv": argv, "env": engine_environment(settings, source)}))


@keys.command("add")
def add_key(
    name: str,
    scope: Annotated[list[Scope] | None, typer.Option(help="may be repeated; default: infer")] = None,
    priority: Priority = Priority.NORMAL,
    timeout: Annotated[float | None, typer.Option(help="seconds that a request may take")] = None,
    requests_per_minute: Count = None,
    tokens_per_minute: Count = None,
    concurrent: Annotated[int | None, typer.Option(min=1, help="requests at once")] = None,
    file: KeyFile = None,
    config_file: ConfigFile = None,
) -> None:
    """Make a key and print it; only its hash is kept, and a running server takes it within seconds."""
    path = _key_file(file, config_file)
    secret = _told(
        lambda: key_file.add(
            path,
            name,
            scopes=tuple(dict.fromkeys(scope or (Scope.INFER,))),
            priority=priority,
            timeout=timeout,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            concurrent_requests=concurrent,
        )
    )
    typer.echo(f"{path} has the hash of {name}'s key; the key itself is shown this once:", err=True)
    typer.echo(secret)


@keys.command("list")
def list_keys(file: KeyFile = None, config_file: ConfigFile = None) -> None:
    """Name, scopes, priority, limits and day of each key."""
    path = _key_file(file, config_file)
    for entry in _told(lambda: key_file.read(path)):
        set_limits = entry.model_dump(include=key_file.LIMITS, exclude_none=True)
        limits = " ".join(f"{name}={value:g}" for name, value in set_limits.items())
        typer.echo(f"{entry.name}\t{','.join(entry.scopes)}\t{entry.priority}\t{limits or '-'}\t{entry.created}")


@keys.command("revoke")
def revoke_key(name: str, file: KeyFile = None, config_file: ConfigFile = None) -> None:
    """Take a key out of the file; a running server refuses it within seconds."""
    path = _key_file(file, config_file)
    _told(lambda: key_file.revoke(path, name))
    typer.echo(f"revoked {name}", err=True)


def _key_file(given: Path | None, config_file: Path | None) -> Path:
    path = given or _load(config_file, None, {}).keys.file
    if path is None:
        _exit("no key file: give --file, or set keys.file")
    return path


def _without_ours(args: dict[str, Any]) -> dict[str, Any]:
    processors = "logits_processors"
    kept = [one for one in args.get(processors) or () if not str(one).startswith("sampling.")]
    others = {name: value for name, value in args.items() if name != processors}
    return others | ({processors: kept} if kept else {})


def _vllm_flag(name: str, value: Any) -> list[str]:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    if isinstance(value, list):
        return [f"--{option}", *map(str, value)]
    return [f"--{option}", json.dumps(value) if isinstance(value, dict) else str(value)]


def _load(config_file: Path | None, assignments: list[str] | None, flags: dict[str, Any]) -> config.Settings:
    if config_file is None:
        profile = config.CONFIGS / f"{detect_device()}.yaml"
        config_file = profile if profile.exists() else None
    return _told(lambda: config.load(config_file, assignments or (), flags))


def _told(work: Callable[[], T]) -> T:
    try:
        return work()
    except (ConfigError, ModelStoreError) as error:
        _exit(str(error))


def _exit(message: str) -> NoReturn:
    typer.echo(f"streamgauge: {message}", err=True)
    raise typer.Exit(2)


def main() -> None:
    app()
