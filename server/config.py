"""Settings: one frozen section per stage. Defaults < YAML < environment (STREAMGAUGE_SECTION__KEY) < flags (--set).

Unknown keys are refused with their path. `engine.args` is passed to vLLM unmirrored, by vLLM's own names.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
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
    header_timeout: float = Field(default=10.0, gt=0, description="from a request's first byte to its last header")
    body_timeout: float = Field(default=30.0, gt=0, description="longest silence within a request's body")
    max_header_bytes: int = Field(default=32 << 10, ge=1024, description="request line and headers together")
    max_headers: int = Field(default=100, ge=10)
    max_body_bytes: int = Field(default=4 << 20, ge=1024, description="as sent, and once decompressed")
    max_body_ratio: int = Field(default=100, ge=1, description="decompressed bytes for each byte sent")
    max_body_depth: int = Field(default=64, ge=8, description="brackets within brackets of a JSON body")
    send_timeout: float = Field(default=30.0, gt=0, description="how long a reader may stall")
    stream_buffer_bytes: int = Field(default=1 << 20, ge=1024, description="kept for a slow reader, and as much merged")
    send_buffer_bytes: int = Field(
        default=64 << 10, ge=0, description="the kernel's buffer of each connection; 0: its own choice, megabytes"
    )
    cors_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = Field(
        default=(), description="origins whose web pages may call this server; *: any"
    )
    tls_cert: Path | None = Field(default=None, description="PEM file with the certificate chain")
    tls_key: Path | None = Field(default=None, description="PEM file with its private key")

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together")
        return self


class KeySettings(Section):
    """Who may call. Without a file and without api_key everybody may, from this machine alone."""

    file: Path | None = Field(default=None, description="what `streamgauge keys` writes; read again when it changes")
    api_key: SecretStr | None = Field(default=None, description="one key with every scope; also STREAMGAUGE_API_KEY")
    insecure: bool = Field(default=False, description="serve other machines without any key")


class LimitSettings(Section):
    """What a key may use in a minute and at once, where the key itself says nothing else. None: no limit."""

    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    concurrent_requests: int | None = Field(default=None, ge=1, description="counted in each server for itself")
    reserve_tokens: int = Field(
        default=4096, ge=1, description="most output tokens that a request sets aside at its start; settled at its end"
    )
    storage: SecretStr = Field(
        default=SecretStr("memory"), description="memory, or redis://user:password@host:port/db to share counts"
    )
    storage_timeout: float = Field(default=0.04, gt=0, description="seconds that a request waits for the storage")
    on_storage_failure: Literal["allow", "refuse"] = "allow"


class SloSettings(Section):
    """What the concurrency limit is steered by. Milliseconds that 99 in 100 requests must keep; None: not steered."""

    ttft_p99_ms: float | None = Field(default=None, gt=0, description="time to first token, waiting included")
    tpot_p99_ms: float | None = Field(default=None, gt=0, description="time per output token")


class DegradeSettings(Section):
    """Shorter answers in place of refusals, for keys of low priority."""

    max_tokens: int | None = Field(default=None, ge=1, description="of each choice under pressure; None: off")
    from_wait: float = Field(default=1.0, ge=0, description="predicted seconds in our queue that count as pressure")


class AdmissionSettings(Section):
    """When requests enter the engine, and which are turned away. Times in seconds."""

    max_batch_size: int | None = Field(
        default=None, ge=1, description="sequences in the engine; default: its max_num_seqs"
    )
    max_queue_delay: float = Field(
        default=0.0, ge=0, le=10, description="how long a prompt is held back so that prompts enter together"
    )
    preferred_batch_size: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(), description="held sequences at which they go at once"
    )
    max_queue_size: int = Field(default=1024, ge=0, description="requests that wait for a permit")
    max_wait: float | None = Field(
        default=None,
        gt=0,
        description="longest wait for a permit, foreseen or real; default: 10, two thirds of http.keepalive or half "
        "of slo.ttft_p99_ms, whichever is least",
    )
    request_timeout: float = Field(default=600.0, gt=0, description="queue and generation together")
    stall_timeout: float = Field(default=300.0, gt=0, description="longest time without a token")
    slo: SloSettings = SloSettings()
    degrade: DegradeSettings = DegradeSettings()


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
    precision: Literal["bf16", "int8"] = Field(default="bf16", description="of a known model's weights")
    served_name: str | None = Field(default=None, description="the name clients use; default: the model's")
    args: dict[str, Any] = Field(default_factory=dict, description="AsyncEngineArgs, by vLLM's names")
    env: dict[str, str] = Field(
        default_factory=dict, description="environment of vLLM, unless already set; not through STREAMGAUGE_"
    )
    stall_s: float = Field(
        default=60.0, gt=0, description="seconds without a step, while requests run, after which it is not ready"
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
    steps: bool = Field(default=True, description="probe the engine's steps; off: nothing of vLLM is wrapped")
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
    keys: KeySettings = KeySettings()
    limits: LimitSettings = LimitSettings()
    admission: AdmissionSettings = AdmissionSettings()
    engine: EngineSettings = EngineSettings()
    chat: ChatSettings = ChatSettings()
    responses: ResponsesSettings = ResponsesSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def max_wait(self) -> float:
        """Seconds that a request may wait for a permit."""
        ttft_ms, keepalive = self.admission.slo.ttft_p99_ms, self.http.keepalive
        bounds = [10.0, *([keepalive * 2 / 3] if keepalive else ()), *([ttft_ms / 2e3] if ttft_ms else ())]
        return self.admission.max_wait or min(bounds)

    @model_validator(mode="after")
    def _check_max_wait(self) -> Self:
        if self.http.keepalive and self.max_wait >= self.http.keepalive:
            raise ValueError(
                f"admission.max_wait ({self.max_wait:g} s) must be below http.keepalive ({self.http.keepalive:g} s): "
                "after that a refusal could not be a status any more"
            )
        ttft_ms = self.admission.slo.ttft_p99_ms
        if ttft_ms and self.max_wait * 1e3 >= ttft_ms:
            raise ValueError(
                f"admission.max_wait ({self.max_wait:g} s) must leave time of admission.slo.ttft_p99_ms ({ttft_ms:g})"
            )
        return self

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
    if (api_key := os.environ.get(f"{ENV_PREFIX}API_KEY")) is not None:
        found.setdefault("keys", {}).setdefault("api_key", api_key)
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
    lines = [": ".join([*_path(problem["loc"]), problem["msg"]]) for problem in error.errors()]
    return "\n".join(lines)


def _path(location: tuple[int | str, ...]) -> list[str]:
    """None for a rule that spans sections: its message names them."""
    return [".".join(str(part) for part in location)] if location else []
