"""Settings on a real server: one at a time, started anew only when they change."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.arms import HOST, Arm, Running, running, served_model
from bench.compare_arms import CHECKOUT, clean_env
from bench.procfs import alive
from bench.run.meter import Progress
from bench.run.result import Result
from bench.run.spec import Spec
from bench.search.command import shown_run
from bench.tune.space import Changes, key
from bench.tune.write import as_yaml, changed

SERVER = (sys.executable, "-m", "server", "serve")
ADDRESS = ("--host", HOST, "--port", "{port}")
READY_S, STOP_S = 600.0, 60.0
# Who may call how often is no question of speed, and the load comes without a key.
LEFT_OUT = ("http", "keys", "limits")


class Stand:
    """Holds the server that runs; `close` stops it. `settings` are the file's, `folder` is for settings and logs.

    The environment is that of `bench.compare_arms`: a variable of the calling shell is not measured with.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        folder: Path,
        model: str | None = None,
        *,
        command: tuple[str, ...] = SERVER,
        load: Callable[[Spec, Callable[[Progress], None]], Any] = shown_run,
    ) -> None:
        self._settings = {name: section for name, section in settings.items() if name not in LEFT_OUT}
        self._folder = folder
        self._command = (*command, *([model] if model else []))
        self._load = load
        self._stack = AsyncExitStack()
        self._up: Running | None = None
        self._changes: Changes = {}
        self._starts = 0

    async def put(self, changes: Changes, spec: Spec, on_progress: Callable[[Progress], None]) -> Result:
        """Raises ArmError for a server that doesn't come up, and what `bench.run.load.run` raises."""
        up = await self._running(changes)
        here = replace(spec, url=f"http://{HOST}:{up.port}", model=await served_model(up.port))
        result: Result = await self._load(here, on_progress)
        return result

    async def close(self) -> None:
        self._up = None
        await self._stack.aclose()

    async def _running(self, changes: Changes) -> Running:
        if self._up is not None and key(self._changes) == key(changes) and alive(self._up.pid):
            return self._up
        await self.close()
        name = self._folder / f"server-{self._starts:02}"
        self._starts += 1
        file = name.with_suffix(".yaml")
        file.write_text(as_yaml(changed(self._settings, changes)), encoding="utf-8")
        arm = Arm(name.name, (*self._command, "--config", str(file.resolve()), *ADDRESS), clean_env(), CHECKOUT)
        server = running(arm, name.with_suffix(".log"), ready_deadline_s=READY_S, stop_deadline_s=STOP_S)
        self._up, self._changes = await self._stack.enter_async_context(server), changes
        return self._up
