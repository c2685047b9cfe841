"""The event loop the bench runs on: uvloop's where it is installed, since the client shares the machine it measures."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """SIGTERM is as Ctrl-C: KeyboardInterrupt, after `main` has cleaned up. What it started would outlive it else."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_terminable(main))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_terminable(main))


async def _terminable(main: Coroutine[Any, Any, _T]) -> _T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        assert task is not None
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await main
    except asyncio.CancelledError:
        if terminated:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
