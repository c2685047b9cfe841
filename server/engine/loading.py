"""An engine that is still to be made: the server answers while its model loads."""

import asyncio
from collections.abc import Callable

from server.engine.protocol import Engine, Handle, ModelInfo, OnReleased, OnStep
from server.errors import NotReady
from server.request import EngineRequest


class LoadingEngine:
    """Stands in for what `create` returns. `create` may block for long (it imports vLLM): it runs in a thread."""

    def __init__(self, create: Callable[[], Engine]) -> None:
        self._create = create
        self._engine: Engine | None = None

    @property
    def model(self) -> ModelInfo:
        return self._loaded().model

    @property
    def alive(self) -> bool:
        return self._engine is not None and self._engine.alive

    @property
    def last_step_ns(self) -> int:
        return self._engine.last_step_ns if self._engine is not None else 0

    async def start(self) -> None:
        self._engine = await asyncio.to_thread(self._create)
        await self._engine.start()

    def submit(self, request: EngineRequest, on_step: OnStep, on_released: OnReleased) -> Handle:
        return self._loaded().submit(request, on_step, on_released)

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    def _loaded(self) -> Engine:
        if self._engine is None:
            raise NotReady
        return self._engine
