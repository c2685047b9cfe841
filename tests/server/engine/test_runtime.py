import sys
from pathlib import Path

import pytest

from server.engine.runtime import cpu_environment, cpu_list, detect_device, listed, system_library_folders


@pytest.fixture
def system(tmp_path: Path) -> Path:
    folder = tmp_path / "system"
    folder.mkdir()
    (folder / "libtcmalloc_minimal.so.4").touch()
    return folder


@pytest.fixture
def venv_lib(tmp_path: Path) -> Path:
    folder = tmp_path / "venv-lib"
    folder.mkdir()
    (folder / "libiomp5.so").touch()
    return folder


def test_a_bare_environment_gets_everything(system: Path, venv_lib: Path) -> None:
    assert cpu_environment({}, [0, 1], venv_lib, local_model=True, library_folders=[system]) == {
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": f"{system}/libtcmalloc_minimal.so.4:{venv_lib}/libiomp5.so",
    }


def test_what_the_user_has_set_stays(system: Path, venv_lib: Path) -> None:
    mine = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "0",
        "HF_HUB_OFFLINE": "",
    }
    added = cpu_environment(mine, [0, 1], venv_lib, local_model=True, library_folders=[system])
    assert set(added) == {"LD_PRELOAD"}


def test_the_hub_stays_reachable_for_a_model_that_is_not_local(venv_lib: Path) -> None:
    assert "HF_HUB_OFFLINE" not in cpu_environment({}, [0], venv_lib, local_model=False, library_folders=[])


@pytest.mark.parametrize(
    "mine, threads",
    [({}, "2"), ({"VLLM_CPU_OMP_THREADS_BIND": "1"}, "1"), ({"VLLM_CPU_OMP_THREADS_BIND": "auto"}, None)],
)
def test_a_worker_within_the_engines_process_computes_on_as_many_threads_as_it_may(
    tmp_path: Path, mine: dict[str, str], threads: str | None
) -> None:
    given = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", **mine}
    added = cpu_environment(given, [0, 1], tmp_path, local_model=True, library_folders=[])
    assert added.get("OMP_NUM_THREADS") == threads
    alone = cpu_environment(mine, [0, 1], tmp_path, local_model=True, library_folders=[])
    assert "OMP_NUM_THREADS" not in alone, "vLLM sets it for a worker's own process"


@pytest.mark.parametrize("cores, count", [("0-3,6", 5), ("2", 1), ("auto", 0), ("", 0), ("0-1|2-3", 0)])
def test_lists_of_cores_are_counted(cores: str, count: int) -> None:
    assert listed(cores) == count


def test_nothing_is_preloaded_where_no_library_is_found(tmp_path: Path) -> None:
    assert "LD_PRELOAD" not in cpu_environment({}, [0], tmp_path, local_model=True, library_folders=[tmp_path])


def test_libraries_are_appended_to_an_existing_preload(system: Path, venv_lib: Path) -> None:
    mine = {"LD_PRELOAD": "/opt/libtrace.so"}
    added = cpu_environment(mine, [0], venv_lib, local_model=True, library_folders=[system])
    assert added["LD_PRELOAD"] == f"/opt/libtrace.so:{system}/libtcmalloc_minimal.so.4:{venv_lib}/libiomp5.so"


def test_a_second_allocator_or_openmp_runtime_is_never_added(system: Path, venv_lib: Path) -> None:
    mine = {"LD_PRELOAD": "/opt/libjemalloc.so:/usr/lib/libgomp.so.1"}
    assert "LD_PRELOAD" not in cpu_environment(mine, [0], venv_lib, local_model=True, library_folders=[system])


def test_applying_the_environment_twice_changes_nothing(system: Path, venv_lib: Path) -> None:
    once = cpu_environment({}, [0], venv_lib, local_model=True, library_folders=[system])
    assert cpu_environment(once, [0], venv_lib, local_model=True, library_folders=[system]) == {}


def test_a_library_whose_path_the_loader_would_split_is_left_out(tmp_path: Path) -> None:
    spaced = tmp_path / "my venv"
    spaced.mkdir()
    (spaced / "libiomp5.so").touch()
    assert "LD_PRELOAD" not in cpu_environment({}, [0], spaced, local_model=True, library_folders=[])


def test_the_first_folder_with_the_allocator_wins(system: Path, tmp_path: Path) -> None:
    added = cpu_environment({}, [0], tmp_path, local_model=True, library_folders=[tmp_path, system, system])
    assert added["LD_PRELOAD"] == f"{system}/libtcmalloc_minimal.so.4"


def test_no_cores_known_leaves_binding_to_the_engine(tmp_path: Path) -> None:
    assert "VLLM_CPU_OMP_THREADS_BIND" not in cpu_environment({}, [], tmp_path, local_model=True, library_folders=[])


@pytest.mark.parametrize(
    ("cpus", "written"),
    [((), ""), ((0,), "0"), ((0, 1), "0-1"), ((7, 2, 3, 0, 3), "0,2-3,7"), (range(64), "0-63")],
)
def test_cores_are_written_as_ranges(cpus: tuple[int, ...], written: str) -> None:
    assert cpu_list(cpus) == written


def test_system_folders_follow_the_machine() -> None:
    assert system_library_folders("aarch64")[0] == Path("/usr/lib/aarch64-linux-gnu")


def test_a_driver_that_answers_means_gpu() -> None:
    assert detect_device((sys.executable, "-c", "")) == "gpu"


def test_a_driver_that_fails_means_cpu() -> None:
    assert detect_device((sys.executable, "-c", "raise SystemExit(9)")) == "cpu"


def test_no_driver_means_cpu(tmp_path: Path) -> None:
    assert detect_device((str(tmp_path / "nvidia-smi"),)) == "cpu"
