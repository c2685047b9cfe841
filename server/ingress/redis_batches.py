"""Scripts run in Redis, many in a round trip: what arrives while one is under way goes together in the next.

With a connection for each call, a burst of requests would spend the storage's time limit on our own event loop, and so
switch the limits off for itself.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, RedisError

_MOST = 256  # calls in one round trip: more could take the time limit by themselves

Arguments = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class _Call:
    script: str
    keys: Sequence[str]
    arguments: Arguments
    answer: asyncio.Future[Any]


class Batches:
    """`timeout` in seconds bounds a round trip, connecting included; when one fails, all who wait fail with it.

    So nobody waits for longer than two, however slow Redis is, but in a burst of more than `_MOST` calls.
    """

    def __init__(self, client: Redis, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._waiting: list[_Call] = []  # one for each request that is about to be admitted or has just ended
        self._task: asyncio.Task[None] | None = None

    async def run(self, script: str, keys: Sequence[str], arguments: Arguments) -> Any:
        """What the script answers; raises RedisError or TimeoutError."""
        call = _Call(script, keys, arguments, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_all(), name="rate-limit-counts")
        return await call.answer

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=self._timeout)
        await self._client.aclose()

    async def _run_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            try:
                async with asyncio.timeout(self._timeout):
                    answers = await self._round_trip(batch)
            except (RedisError, OSError) as error:  # TimeoutError is an OSError
                self._fail(batch, error)
            except BaseException:
                self._fail(batch, ConnectionError("closed"))
                raise
            else:
                for call, answer in zip(batch, answers, strict=True):
                    _tell(call, answer)

    async def _round_trip(self, batch: list[_Call]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for call in batch:
            # Not by its hash: then Redis must be told the script first, and again after each restart.
            pipeline.eval(call.script, len(call.keys), *call.keys, *call.arguments)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    def _fail(self, batch: list[_Call], error: Exception) -> None:
        waiting, self._waiting = self._waiting, []
        for call in (*batch, *waiting):
            _tell(call, error)


def _tell(call: _Call, answer: Any) -> None:
    if call.answer.done():  # its request has been cancelled
        return
    if isinstance(answer, Exception):
        call.answer.set_exception(answer)
    else:
        call.answer.set_result(answer)
