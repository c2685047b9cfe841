"""Tokenizing that must not hold up other streams: short texts at once, long ones in a bounded pool of threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from server.errors import Overloaded

T = TypeVar("T")

INLINE_CHARACTERS = 4096  # about 1 ms; a hop to a thread costs about 0.1 ms


class TokenizerPool:
    """`threads` work at once, at most `waiting` more are queued; then requests are refused."""

    def __init__(self, threads: int = 1, waiting: int = 64) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="tokenizer")
        self._limit = threads + waiting
        self._submitted = 0

    async def run(self, characters: int, work: Callable[[], T]) -> T:
        """`work()` for a text of that many characters; raises Overloaded when too much is queued."""
        if characters <= INLINE_CHARACTERS:
            return work()
        if self._submitted >= self._limit:
            raise Overloaded
        self._submitted += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._submitted -= 1

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
