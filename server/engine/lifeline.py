"""A pipe that ends the engine's processes when this process ends, however it ends.

The parent holds the write end of a FIFO in a private folder; each engine process reads it (sampling/vllm_plugin.py).
The kernel closes our end even on SIGKILL, the readers see the end of file, remove the folder and exit. Whatever else is
shared with the engine's processes lies in that folder too.
"""

import os
import shutil
import tempfile
from pathlib import Path

from sampling.vllm_plugin import LIFELINE


class Lifeline:
    """Open from construction to `close`; child processes find it through the environment.

    The variable outlives `close`: a process that an interrupted load still starts finds nobody there and ends.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="streamgauge-", dir=_memory()))  # mode 0700
        path = self.folder / "lifeline"
        os.mkfifo(path, 0o600)
        self._fd = os.open(path, os.O_RDWR)  # O_RDWR: opening must not wait for a reader
        os.environ[LIFELINE] = str(path)

    def close(self) -> None:
        """Let go: processes still reading end."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            shutil.rmtree(self.folder, ignore_errors=True)


def _memory() -> Path | None:
    """Where files never wait for a disk, if there is such a place."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None
