"""Finished requests: the last ones kept for `/debug/requests`, one log line each. No prompt, no generated text.

Those that were turned away at the door share a line per second: in a flood of them the lines would cost more than the
refusals.
"""

from collections import deque
from itertools import islice
from typing import Any

import structlog

from server.ledger import Ledger

REFUSALS_EVERY_NS = 10**9

_log = structlog.get_logger("streamgauge.request")


class Records:
    """The ledgers of the last `limit` requests."""

    def __init__(self, limit: int) -> None:
        self._ledgers: deque[Ledger] = deque(maxlen=limit)
        self._refused = 0  # since the last line about it
        self._told_ns = -REFUSALS_EVERY_NS

    def add(self, ledger: Ledger) -> None:
        self._ledgers.append(ledger)
        if ledger.turned_away:
            self._refused += 1
            if ledger.ended_ns - self._told_ns >= REFUSALS_EVERY_NS:
                _log_request(ledger, refused=self._refused)
                self._told_ns, self._refused = ledger.ended_ns, 0
        else:
            _log_request(ledger)

    def latest(self, limit: int) -> list[dict[str, Any]]:
        """Up to `limit` records, newest first."""
        return [record(ledger) for ledger in islice(reversed(self._ledgers), limit)]


def record(ledger: Ledger) -> dict[str, Any]:
    """A finished request as JSON; times in ms, `created` in seconds of the wall clock."""
    return {
        "id": ledger.id,
        "client_request_id": ledger.client_request_id,
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


def _log_request(ledger: Ledger, **more: int) -> None:
    report = ledger.report(ledger.ended_ns)
    _log.info(
        "request",
        id=ledger.id,
        client_request_id=ledger.client_request_id,
        endpoint=ledger.endpoint,
        status=ledger.status,
        outcome=ledger.outcome,
        finish_reasons=list(ledger.finish_reasons),
        prompt_tokens=ledger.prompt_tokens,
        output_tokens=ledger.output_tokens,
        ttft_ms=report["ttft_ms"],
        wall_ms=report["wall_ms"],
        stages_ms={name: ms for name, ms in report["stages_ms"].items() if ms},
        **more,
    )
