"""The layer rule of ARCHITECTURE.md, read from the source: every import counts, wherever in a file it stands."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("server", "sampling", "bench")
MAX_LINES = 400

# Top to bottom. A module may import from its own package and from any row below; packages in one row are strangers.
LAYERS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("server.cli", "server.__main__"),),
    (("server.serve",), ("server.doctor",)),
    (("server.app",),),
    (("server.api",),),
    (("server.pipeline",),),
    (("server.ingress",), ("server.admission",), ("server.engine",), ("server.streaming",), ("server.telemetry",)),
    (("server.config", "server.request", "server.ledger", "server.stages", "server.errors"),),
    (("sampling",),),
)
ENGINE_LIBRARIES = ("vllm", "torch")
MAY_IMPORT_ENGINE_LIBRARIES = (
    "server/engine/vllm_engine.py",
    "server/engine/vllm_requests.py",
    "server/engine/vllm_params.py",
    "server/engine/vllm_pump.py",
    "server/engine/vllm_series.py",
    "server/engine/vllm_sink.py",
    "server/engine/quantized_weights.py",
    "server/engine/vllm_socket.py",
    "server/engine/gguf_conversion.py",
    "sampling/vllm_plugin.py",
    "sampling/processors/*",
    "sampling/probe/worker.py",
    "sampling/tools.py",
    "sampling/reasoning.py",
    "sampling/compile_cache.py",
    "sampling/top_p.py",
    "bench/null_executor.py",
    "bench/micro/*",
)
BENCH_MAY_IMPORT_SERVER = ("bench/micro/*",)
MAY_IMPORT_BENCH = ("server/cli.py", "server/__main__.py", "bench/*")


def violations(root: Path) -> list[str]:
    """Every broken rule below `root`, as `file:line: what`."""
    found = []
    for path in sources(root, SOURCES):
        file = path.relative_to(root).as_posix()
        for line, target in imports(root, path):
            found += [f"{file}:{line}: {problem}" for problem in broken_rules(file, target)]
        if place(module_name(file)) is None and not file.startswith("bench/") and path.read_text().strip():
            found.append(f"{file}:1: belongs to no layer")
    return found


def sources(root: Path, folders: tuple[str, ...]) -> list[Path]:
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def broken_rules(file: str, target: str) -> Iterator[str]:
    if is_inside(target, ENGINE_LIBRARIES) and not matches(file, MAY_IMPORT_ENGINE_LIBRARIES):
        yield f"only the engine's adapters may import {target}"
    if is_inside(target, ("bench",)) and not matches(file, MAY_IMPORT_BENCH):
        yield f"only the command line may import {target}"
    if file.startswith("bench/"):
        if is_inside(target, ("server",)) and not matches(file, BENCH_MAY_IMPORT_SERVER):
            yield f"bench measures from outside and may not import {target}"
        return
    here, there = place(module_name(file)), place(target)
    if here is None or there is None or here == there:
        return
    if there[0] < here[0]:
        yield f"may not import {target}, which is in a higher layer"
    elif there[0] == here[0]:
        yield f"may not import {target}, its neighbour in the same layer"


def place(module: str) -> tuple[int, int] | None:
    """Row and package within the row, for modules that have a layer."""
    for row, groups in enumerate(LAYERS):
        for column, group in enumerate(groups):
            if is_inside(module, group):
                return row, column
    return None


def imports(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    package = path.parent.relative_to(root).parts
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                kept = package[: len(package) - node.level + 1] if node.level else ()
                base = ".".join([*kept, *([node.module] if node.module else [])])
                # `from server import stages` names a module, `from server.stages import Stage` something in one.
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def matches(file: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(file, pattern) for pattern in patterns)


def test_the_source_keeps_the_layer_rule() -> None:
    assert violations(ROOT) == []


def test_every_file_stays_small() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources(ROOT, (*SOURCES, "tests"))}
    too_long = {path.relative_to(ROOT).as_posix(): lines for path, lines in lengths.items() if lines > MAX_LINES}
    assert too_long == {}


def test_every_package_is_a_package_at_every_level() -> None:
    """Without `tests/__init__.py` and its like, pytest would import `tests/server` as `server`."""
    folders = {path.parent for path in sources(ROOT, (*SOURCES, "tests"))}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_bench_names_the_stages_as_the_server_does() -> None:
    from bench.stages import STAGES
    from server.stages import Stage

    assert tuple(STAGES) == tuple(stage.label for stage in Stage)


@pytest.mark.parametrize(
    ("file", "source", "problem"),
    [
        ("server/engine/x.py", "from server.app import build", "server.app.build, which is in a higher layer"),
        ("server/engine/x.py", "from server import app", "server.app, which is in a higher layer"),
        ("server/engine/x.py", "from ..api.chat import router", "server.api.chat.router, which is in a higher layer"),
        ("server/engine/x.py", "import server.streaming.stream", "server.streaming.stream, its neighbour"),
        ("server/engine/x.py", "from .. import telemetry", "server.telemetry, its neighbour"),
        ("server/engine/x.py", "def f():\n    import server.pipeline", "server.pipeline, which is in a higher"),
        ("server/stages.py", "if TYPE_CHECKING:\n    from server.engine.x import Y", "server.engine.x.Y, which"),
        ("server/pipeline.py", "import importlib\nimportlib.import_module('server.cli')", "server.cli, which is in"),
        ("server/app.py", "import server.__main__", "server.__main__, which is in a higher layer"),
        ("sampling/stop.py", "from server.request import FinishReason", "server.request.FinishReason, which"),
        ("server/new_idea.py", "x = 1", "belongs to no layer"),
        ("server/api/chat.py", "import torch", "only the engine's adapters may import torch"),
        ("sampling/stop.py", "from vllm.v1 import engine", "only the engine's adapters may import vllm.v1.engine"),
        ("bench/client.py", "import vllm", "only the engine's adapters may import vllm"),
        ("bench/client.py", "from server.stages import Stage", "bench measures from outside"),
        ("bench/null_executor.py", "import server", "bench measures from outside"),
        ("server/app.py", "from bench import client", "only the command line may import bench.client"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, source: str, problem: str) -> None:
    plant(tmp_path, file, source)
    found = violations(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(f"{file}:")
    assert problem in found[0]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("server/__main__.py", "from server.cli import main"),
        ("server/cli.py", "from server import app\nfrom bench import report"),
        ("server/app.py", "from server.api import chat\nfrom server.engine.vllm_engine import VllmEngine"),
        ("server/engine/vllm_engine.py", "import torch\nfrom vllm import x\nfrom server.stages import Stage"),
        ("server/engine/x.py", "from .y import z\nfrom sampling.params import p\nimport server.engine.y"),
        ("server/errors.py", "from server.request import RequestState"),
        ("server/__init__.py", ""),
        ("sampling/processors/dry.py", "import torch"),
        ("bench/null_executor.py", "from vllm.v1 import executor"),
        ("bench/micro/encode.py", "from server.streaming import chunks"),
        ("bench/search.py", "from bench.client import stream\nimport vllm_metrics"),
    ],
)
def test_an_allowed_import_is_not_reported(tmp_path: Path, file: str, source: str) -> None:
    plant(tmp_path, file, source)
    assert violations(tmp_path) == []


def plant(root: Path, file: str, source: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
