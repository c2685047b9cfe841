"""A whole application around an engine of the test's choosing, at the ASGI boundary or behind a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from starlette.types import ASGIApp

from server.api.services import Services
from server.app import build
from server.config import Settings, load
from server.engine.protocol import Engine
from tests.support.asgi import Site, lifespan
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MODEL = "smollm2-135m"

E = TypeVar("E", bound=Engine)


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **fields}


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Hi", **fields}


class Served(Site, Generic[E]):
    """An application whose engine and services lie open."""

    def __init__(self, app: ASGIApp, services: Services, engine: E) -> None:
        super().__init__(app)
        self.services = services
        self.engine = engine

    @property
    def idle(self) -> bool:
        """Nothing of any request is left."""
        return not self.services.metrics.in_flight and not self.services.admission.slots.in_use

    async def records(self) -> list[dict[str, Any]]:
        await until(lambda: self.idle)
        answer = await self.get("/debug/requests?limit=1000")
        found: list[dict[str, Any]] = answer.json["requests"]
        return found


def settings_of(*assignments: str) -> Settings:
    return load(None, assignments)


@asynccontextmanager
async def serving(engine: E, *assignments: str, ready: bool = True) -> AsyncIterator[Served[E]]:
    """`ready`: wait until the model has loaded."""
    app, services = build(settings_of(*assignments), engine=engine)
    async with lifespan(app):
        if ready:
            await until(lambda: services.ready)
        yield Served(app, services, engine)
