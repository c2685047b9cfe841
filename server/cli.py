"""The `streamgauge` command."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml

from server import config
from server.engine.model_store import ModelStore, ModelStoreError
from server.engine.runtime import detect_device

app = typer.Typer(help="An LLM token-streaming server that measures every stage.", no_args_is_help=True)
models = typer.Typer(help="Models this machine has or can get.", no_args_is_help=True)
settings_commands = typer.Typer(help="The settings as they come out.", no_args_is_help=True)
app.add_typer(models, name="models")
app.add_typer(settings_commands, name="config")

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML file; default: configs/cpu.yaml or configs/gpu.yaml by the device")
]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="may be repeated")]
ModelName = Annotated[str | None, typer.Argument(help="a known name, a local folder or a Hugging Face id")]


@app.command()
def serve(
    model: ModelName = None,
    config_file: ConfigFile = None,
    host: Annotated[str | None, typer.Option()] = None,
    port: Annotated[int | None, typer.Option()] = None,
    assignments: Assignments = None,
) -> None:
    """Serve MODEL over HTTP until SIGTERM or Ctrl-C."""
    settings = _load(config_file, assignments, {"engine.model": model, "http.host": host, "http.port": port})
    _told(lambda: ModelStore().resolve(settings.engine.model))
    import uvloop  # here, so that --help stays quick

    from server.serve import serve as run
    from server.telemetry import log

    log.configure(settings.telemetry.log, settings.telemetry.log_level)
    code = uvloop.run(run(settings))
    # Everything is closed by now. Skipping interpreter teardown spares the operator the leak reports that compiled
    # extensions of torch print there, and a hang should one of their threads not end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@models.command("list")
def list_models() -> None:
    """Known models, and which are here."""
    for stored in ModelStore().list():
        here = f"{stored.size_bytes / 1e6:.0f} MB in {stored.path}" if stored.pulled else "not pulled"
        typer.echo(f"{stored.known.name}\t{stored.known.title}\t{stored.known.license}\t{here}")


@models.command()
def pull(name: str) -> None:
    """Fetch and convert a known model; does nothing when it is here."""
    typer.echo(_told(lambda: ModelStore().pull(name, progress=lambda text: typer.echo(text, err=True))))


@models.command()
def path(name: str) -> None:
    """The folder of a pulled model."""
    typer.echo(_told(lambda: ModelStore().path(name)))


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
    """vLLM's own server flags and the environment that equal these settings, as JSON; for comparisons."""
    from server.app import engine_environment  # here, so that --help stays quick

    settings = _load(config_file, assignments, {"engine.model": model})
    source = _told(lambda: ModelStore().resolve(settings.engine.model))
    argv = [flag for name, value in settings.engine.args.items() for flag in _vllm_flag(name, value)]
    typer.echo(json.dumps({"argv": argv, "env": engine_environment(settings, source)}))


def _vllm_flag(name: str, value: Any) -> list[str]:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", json.dumps(value) if isinstance(value, dict | list) else str(value)]


def _load(config_file: Path | None, assignments: list[str] | None, flags: dict[str, Any]) -> config.Settings:
    if config_file is None:
        profile = config.CONFIGS / f"{detect_device()}.yaml"
        config_file = profile if profile.exists() else None
    try:
        return config.load(config_file, assignments or (), flags)
    except config.ConfigError as error:
        _exit(str(error))


def _told(work: Any) -> Any:
    try:
        return work()
    except ModelStoreError as error:
        _exit(str(error))


def _exit(message: str) -> NoReturn:
    typer.echo(f"streamgauge: {message}", err=True)
    raise typer.Exit(2)


def main() -> None:
    app()
