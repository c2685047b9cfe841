"""Finished requests: the last ones kept for `/debug/requests`, one log line each. No prompt, no generated text."""

from collections import deque
from itertools import islice
from typing import Any

import structlog

from server.ledger import Ledger

_log = structlog.get_logger("streamgauge.request")


class Records:
    """The ledgers of the last `limit` requests."""

    def __init__(self, limit: int) -> None:
        self._ledgers: deque[Ledger] = deque(maxlen=limit)

    def add(self, ledger: Ledger) -> None:
        self._ledgers.append(ledger)
        _log_request(ledger)

    def latest(self, limit: int) -> list[dict[str, Any]]:
        """Up to `limit` records, newest first."""
        return [record(ledger) for ledger in islice(reversed(self._ledgers), limit)]


def record(ledger: Ledger) -> dict[str, Any]:
    """A finished request as JSON; times in ms, `created` in seconds of the wall clock."""
    return {
        "id": ledger.id,
        "created": round(ledger.created, 3),
        "endpoint": ledger.endpoint,
        "status": ledger.status,
        "outcome": ledger.outcome,
        "streamed": ledger.streamed,
        "choices": ledger.choices,
        "finish_reasons": list(ledger.finish_reasons),
        "prompt_tokens": ledger.prompt_tokens,
        "output_tokens": ledger.output_tokens,
        **ledger.report(ledger.ended_ns),
    }


def _log_request(ledger: Ledger) -> None:
    report = ledger.report(ledger.ended_ns)
    _log.info(
        "request",
        id=ledger.id,
        endpoint=ledger.endpoint,
        status=ledger.status,
        outcome=ledger.outcome,
        finish_reasons=list(ledger.finish_reasons),
        prompt_tokens=ledger.prompt_tokens,
        output_tokens=ledger.output_tokens,
        ttft_ms=report["ttft_ms"],
        wall_ms=report["wall_ms"],
        stages_ms={name: ms for name, ms in report["stages_ms"].items() if ms},
    )
