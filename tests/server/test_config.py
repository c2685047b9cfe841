import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.config import CONFIGS, ConfigError, Settings, load


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("STREAMGAUGE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(content: Any) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return write


def test_defaults_serve_the_default_model_on_this_machine_alone() -> None:
    settings = load()
    assert settings == Settings()
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8000)
    assert (settings.engine.kind, settings.engine.model) == ("vllm", "smollm2-135m")
    assert settings.http.idle_timeout >= 75  # longer than clients keep a connection in their pools


def test_flags_go_over_the_environment_over_the_file_over_defaults(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write({"http": {"port": 1, "keepalive": 1, "send_timeout": 1}})
    monkeypatch.setenv("STREAMGAUGE_HTTP__PORT", "2")
    monkeypatch.setenv("STREAMGAUGE_HTTP__KEEPALIVE", "2")
    http = load(path, ["http.port=3"]).http
    assert (http.port, http.keepalive, http.send_timeout, http.host) == (3, 2, 1, "127.0.0.1")
    assert load(path, ["http.port=3"], {"http.port": 4, "http.host": None}).http.port == 4


def test_engine_arguments_of_all_sources_come_together(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write({"engine": {"args": {"dtype": "bfloat16", "max_num_seqs": 1, "enforce_eager": True}}})
    monkeypatch.setenv("STREAMGAUGE_ENGINE__ARGS__MAX_NUM_SEQS", "2")
    monkeypatch.setenv("STREAMGAUGE_ENGINE__ARGS__ENFORCE_EAGER", "false")
    args = load(path, ["engine.args.block_size=16", "engine.args.distributed_executor_backend=pkg.Class"]).engine.args
    assert args == {
        "dtype": "bfloat16",
        "max_num_seqs": 2,
        "enforce_eager": False,
        "block_size": 16,
        "distributed_executor_backend": "pkg.Class",
    }


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("engine.args.x=64", 64),
        ("engine.args.x=0.5", 0.5),
        ("engine.args.x=true", True),
        ("engine.args.x=null", None),
        ("engine.args.x=text", "text"),
        ("engine.args.x='64'", "64"),
        ("engine.args.x=a=b", "a=b"),
        ("engine.args.x={a: [1, 2]}", {"a": [1, 2]}),
        ("engine.args.x=", None),
    ],
)
def test_values_of_assignments_are_yaml(assignment: str, value: Any) -> None:
    assert load(None, [assignment]).engine.args == {"x": value}


@pytest.mark.parametrize(
    ("assignment", "named"),
    [
        ("http.prot=1", "http.prot"),
        ("htp.port=1", "htp"),
        ("port=1", "port"),
        ("engine.scripted.step=1", "engine.scripted.step"),
        ("http.port=x", "http.port"),
        ("http.port=65536", "http.port"),
        ("http.port=-1", "http.port"),
        ("http=1", "http"),
        ("http.port.x=1", "http.port"),
        ("http.send_timeout=.nan", "http.send_timeout"),
        ("http.cors_origins=['https://app.example/']", "http.cors_origins.0"),
        ("http.cors_origins=['*', 'https://app.example/page']", "http.cors_origins.1"),
        ("http.cors_origins=['app.example']", "http.cors_origins.0"),
        ("http.cors_origins=['https://App.example']", "http.cors_origins.0"),
        ("http.cors_origins=['https://*.example']", "http.cors_origins.0"),
        ("http.cors_origins=['https://me@app.example']", "http.cors_origins.0"),
        ("http.cors_origins=['null']", "http.cors_origins.0"),
        ('http.cors_origins=["https://app.example\\n"]', "http.cors_origins.0"),
        ("http.cors_origins=https://app.example", "http.cors_origins"),
        ("engine.kind=magic", "engine.kind"),
        ("engine.args=1", "engine.args"),
        ("telemetry.log_level=loud", "telemetry.log_level"),
        ("http.port", "http.port"),
        ("http.port=[", "http.port"),
        ("=1", "=1"),
        ("", "--set"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_path(write: Any, assignment: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, [assignment])
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "origin",
    ["*", "https://app.example", "http://localhost:3000", "http://[::1]:8080", "http://10.0.0.1", "app-x://page"],
)
def test_an_origin_is_given_as_a_browser_sends_it(origin: str) -> None:
    assert load(None, [f"http.cors_origins=['{origin}', 'https://b.example']"]).http.cors_origins == (
        origin,
        "https://b.example",
    )


def test_an_assignment_through_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"http\.port"):
        load(None, ["http.port=1", "http.port.x=2"])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"http": {"prot": 1}}, "http.prot"),
        ({"htp": {}}, "htp"),
        ({"engine": {"scripted": {"nope": 1}}}, "engine.scripted.nope"),
        ({1: 2}, "config.yaml"),
        ("http: [", "config.yaml"),
        ("- 1", "config.yaml"),
        ("text", "config.yaml"),
        ("http:\n", "http"),
        ("a: !!python/object/apply:os.getcwd []", "config.yaml"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_path(write: Any, content: Any, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(content))
    assert named in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load(tmp_path / "nowhere.yaml")


def test_an_empty_file_says_nothing(write: Any) -> None:
    assert load(write("")) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("STREAMGAUGE_HTTP__PORT", "x", "http.port"),
        ("STREAMGAUGE_HTTP__PROT", "1", "http.prot"),
        ("STREAMGAUGE_HTTP", "no json", "http"),
        ("STREAMGAUGE_HTTP", "[1]", "http"),
        ("STREAMGAUGE_HTPP__PORT", "1", "STREAMGAUGE_HTPP__PORT"),
        ("STREAMGAUGE_ENGINE__ARGS__X", "[", "engine.args.x"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused_with_the_key(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load()
    assert named in str(caught.value)


def test_variables_that_are_no_settings_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_CACHE", "/somewhere")
    monkeypatch.setenv("STREAMGAUGE_LIFELINE", "/somewhere/else")
    assert load() == Settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().http.port = 1  # type: ignore[misc]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_profiles_can_be_used(path: Path) -> None:
    assert load(path).engine.kind == "vllm"
