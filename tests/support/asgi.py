"""The application at the ASGI boundary: a request goes in, the messages it answers with lie in a list."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import Any, Self

from starlette.types import ASGIApp, Message

from tests.support import sse
from tests.support.waiting import DEADLINE_S


class FakeConnection:
    """Stands in for the HTTP protocol's `Connection`; a paused one takes nothing and makes `send` wait."""

    def __init__(self) -> None:
        self.received_ns = monotonic_ns()
        self.completed_ns = 0
        self.started = False
        self.aborted = False
        self.gone = False
        self.writes: list[bytes] = []
        self._on_lost: Callable[[], None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def try_write(self, body: bytes) -> bool:
        if not self.started or not self._writable.is_set():
            return False
        self.writes.append(body)
        return True

    def abort(self) -> None:
        self.aborted = True

    def when_lost(self, act: Callable[[], None] | None) -> None:
        self._on_lost = act
        if act is not None and self.gone:
            act()

    def lose(self) -> None:
        self.gone = True
        self._writable.set()
        if self._on_lost is not None:
            self._on_lost()

    def pause(self) -> None:
        self._writable.clear()

    def resume(self) -> None:
        self._writable.set()

    async def writable(self) -> None:
        await self._writable.wait()


class Exchange:
    """One request under way. Await it for its end."""

    def __init__(self, app: ASGIApp, scope: dict[str, Any], chunks: Sequence[bytes], *, plain: bool = False) -> None:
        self.connection = FakeConnection()
        if not plain:
            scope["extensions"] = {"streamgauge": self.connection}
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self._chunks = list(chunks)
        self._gone = asyncio.Event()
        self._task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def __await__(self) -> Generator[Any, None, Self]:
        return self._finish().__await__()

    async def _finish(self) -> Self:
        async with asyncio.timeout(DEADLINE_S):
            await self._task
        return self

    def disconnect(self) -> None:
        self._gone.set()
        self.connection.lose()

    @property
    def writes(self) -> list[bytes]:
        """What each write to the transport held."""
        return self.connection.writes

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        return sse.events(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error of an answer that is one, in exactly OpenAI's shape."""
        assert self.headers["content-type"] == "application/json"
        assert set(self.json) == {"error"}
        error: dict[str, Any] = self.json["error"]
        assert list(error)[:4] == ["message", "type", "param", "code"]  # figures may follow
        return error

    async def _receive(self) -> Message:
        if self._chunks:
            chunk = self._chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.connection.writable()
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.connection.started = True
        else:
            if message.get("body"):
                self.connection.writes.append(message["body"])
            self.complete = not message.get("more_body", False)


def scope_of(method: str, path: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }


class Site:
    """A running application: `open` starts a request, `post` and `get` see it through."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def open(self, path: str, payload: Any, *, plain: bool = False) -> Exchange:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return self.send("POST", path, [raw], plain=plain)

    def send(self, method: str, path: str, chunks: Sequence[bytes] = (b"",), *, plain: bool = False) -> Exchange:
        return Exchange(self.app, scope_of(method, path, {"content-type": "application/json"}), chunks, plain=plain)

    async def post(self, path: str, payload: Any) -> Exchange:
        return await self.open(path, payload)

    async def get(self, path: str) -> Exchange:
        return await self.send("GET", path)


@asynccontextmanager
async def lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Start the application, and shut it down at the end."""
    requests: asyncio.Queue[Message] = asyncio.Queue()
    answers: asyncio.Queue[Message] = asyncio.Queue()
    scope: dict[str, Any] = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    task = asyncio.ensure_future(app(scope, requests.get, answers.put))
    try:
        for phase in ("startup", "shutdown"):
            requests.put_nowait({"type": f"lifespan.{phase}"})
            async with asyncio.timeout(DEADLINE_S):
                assert (await answers.get())["type"] == f"lifespan.{phase}.complete"
            if phase == "startup":
                try:
                    yield
                except BaseException:
                    task.cancel()
                    raise
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait((task,))
