import asyncio
import threading

import pytest

from server.engine.tokenizer_pool import INLINE_CHARACTERS, TokenizerPool
from server.errors import Overloaded
from tests.support.waiting import turns

LONG = INLINE_CHARACTERS + 1


async def test_a_short_text_is_worked_on_at_once_and_a_long_one_in_a_thread() -> None:
    pool = TokenizerPool()
    here = threading.get_ident()
    assert await pool.run(INLINE_CHARACTERS, threading.get_ident) == here
    assert await pool.run(LONG, threading.get_ident) != here
    pool.close()


async def test_more_long_texts_than_may_wait_are_refused() -> None:
    pool = TokenizerPool(threads=1, waiting=2)
    gate = threading.Event()
    under_way = [asyncio.create_task(pool.run(LONG, lambda: gate.wait(20))) for _ in range(3)]
    await turns()
    with pytest.raises(Overloaded):
        await pool.run(LONG, lambda: None)
    assert await pool.run(1, lambda: "short ones still go through") is not None
    gate.set()
    assert await asyncio.gather(*under_way) == [True] * 3
    assert await pool.run(LONG, lambda: 1) == 1
    pool.close()


@pytest.mark.parametrize("characters", [1, LONG])
async def test_what_the_work_raises_is_raised(characters: int) -> None:
    pool = TokenizerPool(waiting=0)

    def broken() -> None:
        raise KeyError("x")

    for _ in range(3):
        with pytest.raises(KeyError):
            await pool.run(characters, broken)
    pool.close()
