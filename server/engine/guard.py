"""The wall between an engine's output task and what a stream does with its deltas."""

from collections.abc import Callable
from functools import partial

import structlog
from prometheus_client import Counter

from server.engine.protocol import OnReleased, OnStep
from server.errors import InternalError
from server.request import TokenDelta

STEP_FAILURES = Counter("streamgauge_step_failures", "Deltas whose handling raised; each ended its own stream.")

_log = structlog.get_logger(__name__)


def push(on_step: OnStep, delta: TokenDelta, abort: Callable[[], None]) -> None:
    """Give a stream its delta; never raises.

    An exception here would end the task that feeds *every* stream. So a failing handler, whatever it raises, costs only
    its own request: that is aborted, counted and told.
    """
    try:
        on_step(delta)
    except BaseException:
        STEP_FAILURES.inc()
        _log.exception("step_failed")
        _try(abort)
        _try(partial(on_step, TokenDelta((), error=InternalError())))


def release(on_released: OnReleased) -> None:
    """Tell that a sequence's slot is free; never raises."""
    _try(on_released)


def _try(action: Callable[[], None]) -> None:
    try:
        action()
    except BaseException:
        _log.exception("step_failed_again")
