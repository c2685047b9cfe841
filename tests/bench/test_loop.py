"""SIGTERM ends a bench as Ctrl-C does: what it has started must not outlive it."""

import asyncio
import os
import signal

import pytest

from bench import loop


def test_what_is_run_gives_its_value() -> None:
    async def main() -> int:
        await asyncio.sleep(0)
        return 7

    assert loop.run(main()) == 7


def test_sigterm_lets_it_clean_up_and_is_a_keyboard_interrupt() -> None:
    """`kill` on a tuning run once left its server behind."""
    cleaned = False

    async def main() -> None:
        nonlocal cleaned
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(0)
            cleaned = True

    with pytest.raises(KeyboardInterrupt):
        loop.run(main())
    assert cleaned
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_any_other_cancellation_stays_what_it_is() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        loop.run(main())
