"""Settings: one frozen section per stage. Defaults < YAML < environment (STREAMGAUGE_SECTION__KEY) < flags (--set).

Unknown keys are refused with their path. `engine.args` is passed to vLLM unmirrored, by vLLM's own names.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

ENV_PREFIX = "STREAMGAUGE_"
CONFIGS = Path(__file__).resolve().parent.parent / "configs"


class ConfigError(Exception):
    """A setting that cannot be used; the message names its path and is written for the operator."""


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def _origin(text: str) -> str:
    if text != "*" and not _ORIGIN.fullmatch(text):
        raise ValueError("expected * or scheme://host[:port] in lower case and without a path, as a browser sends it")
    return text


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HttpSettings(Section):
    """The socket side. Times in seconds."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    shutdown_grace: float = Field(default=30.0, ge=0, description="how long running streams may finish after SIGTERM")
    keepalive: float = Field(default=15.0, ge=0, description="silence after which headers or an empty line go out")
    idle_timeout: int = Field(default=75, ge=1, description="how long an idle connection is kept open")
    send_timeout: float = Field(default=30.0, gt=0, description="how long a reader may stall")
    stream_buffer_bytes: int = Field(default=1 << 20, ge=1024, description="bytes kept for a slow reader")
    max_body_bytes: int = Field(default=4 << 20, ge=1024)
    cors_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = Field(
        default=(), description="origins whose web pages may call this server; *: any"
    )


class AdmissionSettings(Section):
    """Who may enter the engine."""

    max_sequences: int = Field(default=1024, ge=1, description="sequences in flight; more are refused with 503")
    request_timeout: float = Field(default=600.0, gt=0, description="seconds for queue and generation together")


class ScriptedSettings(Section):
    """The scripted engine: which ids it plays, and how long a step takes."""

    token_ids: tuple[int, ...] = Field(default=(504, 3575, 282, 4649, 314, 7042, 30), min_length=1)
    stop_after: int = Field(default=0, ge=0, description="ids before the end of sequence; 0: only max_tokens ends it")
    fail_after: int = Field(default=0, ge=0, description="ids before an engine error; 0: never")
    step_ms: float = Field(default=20.0, ge=0)
    token_us: float = Field(default=0.0, ge=0)
    transfer_ms: float = Field(default=0.0, ge=0)
    load_s: float = Field(default=0.0, ge=0)
    max_num_seqs: int = Field(default=256, ge=1)
    max_model_len: int = Field(default=8192, ge=2)


class EngineSettings(Section):
    """What generates. `scripted` is for tests and benches and never a fallback."""

    kind: Literal["vllm", "scripted"] = "vllm"
    model: str = Field(default="smollm2-135m", description="a known name, a local folder or a Hugging Face id")
    served_name: str | None = Field(default=None, description="the name clients use; default: the model's")
    args: dict[str, Any] = Field(default_factory=dict, description="AsyncEngineArgs, by vLLM's names")
    env: dict[str, str] = Field(
        default_factory=dict, description="environment of vLLM, unless already set; not through STREAMGAUGE_"
    )
    scripted: ScriptedSettings = ScriptedSettings()


class ChatSettings(Section):
    """How a chat model's answers are read."""

    tool_parser: str | None = Field(default=None, description="hermes, llama3_json, qwen3_xml, or one of vLLM's")
    reasoning_parser: str | None = Field(default=None, description="think, or one of vLLM's")
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = Field(
        default="reasoning", description="what clients find a model's thoughts under"
    )
    template_kwargs: tuple[str, ...] = Field(
        default=("enable_thinking", "thinking", "reasoning_effort"),
        description="the chat_template_kwargs that a request may give",
    )
    run_limit: int = Field(
        default=512, ge=0, description="blanks or digits on end that end a constrained answer with an error; 0: never"
    )


class ResponsesSettings(Section):
    """Which responses can be asked for again; the least recently used give way."""

    store_bytes: int = Field(default=64 << 20, ge=0)
    store_count: int = Field(default=1000, ge=0, description="0: none is stored, nor runs in the background")
    store_seconds: float = Field(default=3600.0, gt=0, description="how long after its last use a response is kept")
    event_log_bytes: int = Field(
        default=1 << 20, ge=1024, description="events kept of each background response, for readers that come back"
    )


class TelemetrySettings(Section):
    """What is measured and kept."""

    ledger: bool = Field(default=True, description="stage stamps; off only to measure what they cost")
    records: int = Field(default=1000, ge=0, description="finished requests kept for /debug/requests")
    log: Literal["auto", "json", "console"] = Field(default="auto", description="auto: console on a terminal")
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(BaseSettings):
    """All sections. Build with `load`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    http: HttpSettings = HttpSettings()
    admission: AdmissionSettings = AdmissionSettings()
    engine: EngineSettings = EngineSettings()
    chat: ChatSettings = ChatSettings()
    responses: ResponsesSettings = ResponsesSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings)


def load(
    config: Path | None = None, assignments: Sequence[str] = (), flags: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from the YAML file, the environment, and `section.key=value` assignments over both.

    Raises ConfigError naming the key. Values of assignments are YAML: `engine.args.max_num_seqs=64` is a number.
    """
    from_file = _read_yaml(config) if config is not None else {}
    from_flags: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        if not equals or not path:
            raise ConfigError(f"--set {assignment}: expected section.key=value")
        _assign(from_flags, path, _parse_yaml(value, path))
    for path, value in (flags or {}).items():
        if value is not None:
            _assign(from_flags, path, value)
    try:
        return Settings.model_validate(_merged(_merged(from_file, _read_environment()), from_flags))
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None
    except SettingsError as error:
        raise ConfigError(f"environment: {error}") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = _parse_yaml(path.read_text(), path) or {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path}: expected sections of settings")
    return content


def _parse_yaml(text: str, where: object) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {error}") from None


def _read_environment() -> dict[str, Any]:
    for name in os.environ:
        section, nested, _ = name.upper().removeprefix(ENV_PREFIX).partition("__")
        if name.upper().startswith(ENV_PREFIX) and nested and section.lower() not in Settings.model_fields:
            raise ConfigError(f"{name}: there is no such section")
    found = Settings().model_dump(exclude_unset=True)
    args = found.get("engine", {}).get("args", {})
    args.update({n: _parse_yaml(value, f"engine.args.{n}") for n, value in args.items() if isinstance(value, str)})
    return found


def _assign(tree: dict[str, Any], path: str, value: Any) -> None:
    *sections, key = path.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"{path}: {section} is given as a value too")
    tree[key] = value


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """`high` over `low`, section by section."""
    merged = dict(low)
    for key, value in high.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _explain(error: ValidationError) -> str:
    lines = [f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()]
    return "\n".join(lines)
