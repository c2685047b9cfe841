"""What is loaded into vLLM's processes, through the entry point `vllm.general_plugins`.

vLLM calls `register` once in every process it uses. In a process without our lifeline it does nothing at all.
"""

import multiprocessing
import os
import shutil
import signal
import threading

LIFELINE = "STREAMGAUGE_LIFELINE"  # the path of a FIFO whose write end the serving process holds


def register() -> None:
    """In an engine process: leave the terminal's foreground group, and end when the serving process ends."""
    path = os.environ.get(LIFELINE)
    if path is None or multiprocessing.parent_process() is None:
        return
    # Ctrl-C in a terminal is for the serving process, which drains first. A group, not a session: Linux shares out the
    # processors by session (sched_autogroup), and the worker would have to share equally with EngineCore's spin.
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, args=(path,), name="lifeline", daemon=True).start()


def _end_with_parent(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # must not wait for a writer that is already gone
        os.set_blocking(fd, True)
        os.read(fd, 1)  # nothing is ever written: returns at end of file
    except FileNotFoundError:
        pass  # the parent has cleaned up and gone
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)
