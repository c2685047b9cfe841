"""The running server: uvicorn under our own signals.

SIGTERM and SIGINT start a drain: readiness turns 503 while the listener stays open, running streams get
`http.shutdown_grace` seconds, what is left then ends with an error event, and the process exits with 0.
A second signal cuts the drain short.
"""

import asyncio
import ipaddress
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import structlog
import uvicorn
from starlette.types import ASGIApp

from server.api.services import Services
from server.app import build
from server.config import ConfigError, HttpSettings, Settings
from server.errors import ShuttingDown
from server.ingress.protocol import MeasuredProtocol
from server.ingress.sweeper import Sweeper

_log = structlog.get_logger(__name__)

LAST_WORDS_S = 2.0  # for error events to reach their readers


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: they would end streams that may still finish."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: Settings) -> int:
    """Serve until a signal or a failed load; returns the exit code. Raises ConfigError before anything is opened."""
    check_exposure(settings)
    failed = asyncio.Event()
    app, services = build(settings, on_load_failed=failed.set)
    server = http_server(app, settings.http)
    listener = server.config.bind_socket()  # before the model is loaded: a port in use ends the process at once
    drain = _Drain(services, server)
    drain.listen()
    give_up = asyncio.create_task(_exit_when(failed, server), name="exit-on-failed-load")
    try:
        await server.serve(sockets=[listener])
    finally:
        give_up.cancel()
        await drain.close()
    return 1 if failed.is_set() or not server.started else 0


def check_exposure(settings: Settings) -> None:
    """Without keys anybody who reaches the address may do everything: only this machine's users, unless that is meant.

    Raises ConfigError.
    """
    keys, host = settings.keys, settings.http.host
    if keys.file is not None or keys.api_key is not None:
        return
    here = _is_loopback(host)
    if not (here or keys.insecure):
        raise ConfigError(
            f"http.host={host}: without API keys only this machine is served. Set keys.file or keys.api_key, "
            "or let anybody do everything with --insecure."
        )
    _log.warning("no_keys", who_may_call="anybody on this machine" if here else "anybody", host=host)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def http_server(app: ASGIApp, http: HttpSettings) -> uvicorn.Server:
    """uvicorn as we use it: our protocol with its bounds, our signals, and no trust in X-Forwarded headers."""
    return _Server(
        uvicorn.Config(
            app,
            host=http.host,
            port=http.port,
            http=partial(MeasuredProtocol, http=http, sweeper=Sweeper(http)),  # type: ignore[arg-type]
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=http.idle_timeout,
            timeout_graceful_shutdown=5,
            ssl_certfile=http.tls_cert,
            ssl_keyfile=http.tls_key,
        )
    )


async def _exit_when(failed: asyncio.Event, server: uvicorn.Server) -> None:
    await failed.wait()
    server.should_exit = True


class _Drain:
    """From the first signal to uvicorn's exit."""

    def __init__(self, services: Services, server: uvicorn.Server) -> None:
        self._services = services
        self._server = server
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)

    def _on_signal(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="drain")
        else:
            self._hurry.set()

    async def _run(self) -> None:
        services = self._services
        services.draining = True
        services.admission.close()
        _log.info("draining", in_flight=services.metrics.in_flight, grace_s=services.settings.http.shutdown_grace)
        await self._until_idle(services.settings.http.shutdown_grace, hurry=self._hurry)
        services.pipeline.fail_all(ShuttingDown())
        await self._until_idle(LAST_WORDS_S)
        self._server.should_exit = True

    async def _until_idle(self, seconds: float, hurry: asyncio.Event | None = None) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while self._services.metrics.in_flight and asyncio.get_running_loop().time() < deadline:
            if hurry is not None and hurry.is_set():
                return
            await asyncio.sleep(0.02)
