"""Opens a ledger at the first byte of every generation request and closes it after the last, however that ends.

A generation that outlives its request takes the ledger out of the request's state, and closes it itself.
"""

from collections.abc import Mapping
from time import monotonic_ns
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.ledger import Ledger
from server.stages import NullClock, StageClock
from server.telemetry.metrics import Metrics
from server.telemetry.records import Records


class LedgerMiddleware:
    """Pure ASGI. `endpoints` maps the measured paths to their names; the ledger lies in `scope["state"]["ledger"]`."""

    def __init__(
        self, app: ASGIApp, endpoints: Mapping[str, str], metrics: Metrics, records: Records, *, ledger: bool
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._metrics = metrics
        self._records = records
        self._clock = StageClock if ledger else NullClock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        ledger = self._open(scope, endpoint)

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                ledger.status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            if scope["state"].get("ledger") is ledger:
                close_ledger(ledger, self._metrics, self._records)

    def _open(self, scope: Scope, endpoint: str) -> Ledger:
        connection = scope.get("extensions", {}).get("streamgauge")
        clock = self._clock(connection.received_ns if connection else None)
        ledger = Ledger(id=f"req-{uuid4().hex}", clock=clock, endpoint=endpoint)
        scope.setdefault("state", {})["ledger"] = ledger
        self._metrics.in_flight += 1
        return ledger


def close_ledger(ledger: Ledger, metrics: Metrics, records: Records) -> None:
    ledger.ended_ns = monotonic_ns()
    if ledger.error is None and ledger.status >= 400:
        ledger.error = f"http_{ledger.status}"
    metrics.in_flight -= 1
    metrics.finished(ledger)
    records.add(ledger)
