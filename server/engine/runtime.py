"""What the engine needs from its machine: environment variables for a CPU engine, and which device there is."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

TCMALLOC = "libtcmalloc_minimal.so.4"
INTEL_OPENMP = "libiomp5.so"


def system_library_folders(machine: str | None = None) -> tuple[Path, ...]:
    machine = machine or platform.machine()
    names = (f"/usr/lib/{machine}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
    return tuple(Path(name) for name in names)


def cpu_environment(
    environ: Mapping[str, str],
    cpus: Iterable[int],
    venv_lib: Path,
    *,
    local_model: bool,
    library_folders: Sequence[Path] | None = None,
) -> dict[str, str]:
    """The variables to add before a CPU engine starts. What the user has set stays; LD_PRELOAD is appended to."""
    wanted = {"VLLM_NO_USAGE_STATS": "1"}
    if binding := cpu_list(cpus):
        # vLLM's `auto` keeps cores free for the front end, on two cores half the machine.
        wanted["VLLM_CPU_OMP_THREADS_BIND"] = binding
    if local_model:
        wanted["HF_HUB_OFFLINE"] = "1"
    added = {name: value for name, value in wanted.items() if name not in environ}
    folders = system_library_folders() if library_folders is None else library_folders
    if libraries := _libraries_to_preload(environ.get("LD_PRELOAD", ""), folders, venv_lib):
        before = [environ["LD_PRELOAD"]] if environ.get("LD_PRELOAD") else []
        added["LD_PRELOAD"] = ":".join([*before, *libraries])
    return added


def cpu_list(cpus: Iterable[int]) -> str:
    """Cores as vLLM and the kernel write them: `0-3,6`."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _libraries_to_preload(loaded: str, folders: Sequence[Path], venv_lib: Path) -> list[str]:
    libraries = []
    if "malloc" not in loaded:
        libraries += [folder / TCMALLOC for folder in folders if (folder / TCMALLOC).exists()][:1]
    # One OpenMP runtime only: vLLM refuses to start with two.
    if (
        not any(runtime in loaded for runtime in ("libiomp", "libomp", "libgomp"))
        and (venv_lib / INTEL_OPENMP).exists()
    ):
        libraries.append(venv_lib / INTEL_OPENMP)
    # The loader splits LD_PRELOAD at colons and spaces and knows no quoting.
    return [str(library) for library in libraries if not set(str(library)) & {":", " "}]


@cache
def detect_device(command: tuple[str, ...] = ("nvidia-smi",)) -> Literal["cpu", "gpu"]:
    """`gpu` where an NVIDIA driver answers, as `make setup` decides which vLLM to install; asked once per process."""
    try:
        answer = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "gpu" if answer.returncode == 0 else "cpu"
