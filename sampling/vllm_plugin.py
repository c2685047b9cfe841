"""What is loaded into vLLM's processes, through the entry point `vllm.general_plugins`.

vLLM calls `register` once in every process it uses. In a process without our lifeline it does nothing at all.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
from functools import wraps
from pathlib import Path
from typing import Any

from sampling.probe import core, worker
from sampling.probe.records import CORE_RING, WORKER_RING, CoreRecord, WorkerRecord
from sampling.probe.ring import RingWriter

LIFELINE = "STREAMGAUGE_LIFELINE"  # the path of a FIFO whose write end the serving process holds


def register() -> None:
    """In an engine process: leave the terminal's foreground group, end with the serving process, find what is compiled,
    probe the steps."""
    path = os.environ.get(LIFELINE)
    if path is None or multiprocessing.parent_process() is None:
        return
    # Ctrl-C in a terminal is for the serving process, which drains first. A group, not a session: Linux shares out the
    # processors by session (sched_autogroup), and the worker would have to share equally with EngineCore's spin.
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, args=(path,), name="lifeline", daemon=True).start()
    from sampling import compile_cache  # here: it brings torch, which is there already in these processes

    compile_cache.install()
    folder = Path(path).parent
    if (folder / CORE_RING).exists():  # else the probe is off, and nothing is wrapped
        _probe(folder)


def _end_with_parent(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # must not wait for a writer that is already gone
        os.set_blocking(fd, True)
        os.read(fd, 1)  # nothing is ever written: returns at end of file
    except FileNotFoundError:
        pass  # the parent has cleaned up and gone
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _probe(folder: Path) -> None:
    """Wrap the scheduling loop where it is, and the worker once its device is there."""
    if "vllm.v1.engine.core" in sys.modules:
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.engine.core import EngineCoreProc

        ring = RingWriter(folder / CORE_RING, len(CoreRecord._fields))
        core.install(core.CoreProbe(ring), Scheduler, EngineCoreProc)
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    init_device = WorkerWrapperBase.init_device

    @wraps(init_device)
    def initializing(self: Any) -> None:
        init_device(self)  # type: ignore[no-untyped-call]
        worker.install(RingWriter(folder / WORKER_RING, len(WorkerRecord._fields)), self.worker)

    WorkerWrapperBase.init_device = initializing  # type: ignore[method-assign]
