"""`streamgauge serve` as a process of its own, and what it leaves behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.integration.live import LOAD_S, wait_until

COMMAND = Path(sys.executable).with_name("streamgauge")
SMALL = {
    "engine.args.max_num_seqs": 16,
    "engine.args.max_model_len": 1024,
    "engine.args.kv_cache_memory_bytes": 1 << 28,
    "http.shutdown_grace": 120,
}


class ServerProcess:
    """`start` returns at once. Everything it starts is gone when `stop` returns."""

    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.log_path = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._engine: list[psutil.Process] = []

    def start(self, *arguments: str, **options: Any) -> None:
        """`arguments` are the command's, `options` Popen's."""
        sets = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
        # Temporary files of our own folder, to see what stays.
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        with self.log_path.open("wb") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT, **options}
            command = [str(COMMAND), "serve", "smollm2-135m", "--port", str(self.port), *arguments, *sets]
            self._process = subprocess.Popen(command, env=environment, **options)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def status(self, path: str) -> int | None:
        """None while nothing listens."""
        try:
            return httpx.get(f"http://{self.host}:{self.port}{path}", timeout=10).status_code
        except httpx.TransportError:
            return None

    def wait_for(self, path: str, status: int, within: float) -> None:
        wait_until(lambda: self.ended() or self.status(path) == status, f"{path} answers {status}", within)
        assert not self.ended(), self.log[-3000:]

    def wait_ready(self) -> None:
        self.wait_for("/ready", 200, LOAD_S)
        assert self.engine_processes(), "the engine has processes of its own"

    def ended(self, *, watch: bool = False) -> bool:
        """Whether the server itself has ended; with `watch` its processes are noted meanwhile."""
        assert self._process is not None
        if watch:
            self.engine_processes()
        return self._process.poll() is not None

    def engine_processes(self) -> list[psutil.Process]:
        """Every process below the server's so far, ended or not."""
        with suppress(psutil.NoSuchProcess):
            known = set(self._engine)
            self._engine += [p for p in psutil.Process(self.pid).children(recursive=True) if p not in known]
        return self._engine

    def has_engine_core(self) -> bool:
        """Also while it is young and has no name of its own."""
        return any("spawn_main" in _command(p) for p in self.engine_processes())

    def engine_core(self) -> psutil.Process:
        (found,) = [p for p in self.engine_processes() if "EngineCore" in _command(p)]
        return found

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def exit_code(self, within: float) -> int:
        assert self._process is not None
        return self._process.wait(within)

    def assert_nothing_left(self, within: float = 10.0) -> None:
        wait_until(lambda: not any(map(_runs, self._engine)), "every engine process has ended", within)
        assert list(self.folder.glob("streamgauge-*")) == [], "the lifeline's folder is gone"

    def stop(self) -> None:
        """For the end of a test, also of a failed one."""
        if self._process is None:
            return
        self.engine_processes()
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(10)
        for process in self._engine:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def server_process() -> Iterator[ServerProcess]:
    # Not pytest's tmp_path: vLLM puts Unix sockets there, whose paths must be short.
    with tempfile.TemporaryDirectory(prefix="sg-", ignore_cleanup_errors=True) as folder:
        server = ServerProcess(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
