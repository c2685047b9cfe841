import asyncio
import time
from itertools import repeat

import pytest

from bench.load import Target, run_closed_loop, run_open_loop
from bench.sample import RequestSample
from tests.bench.bytes import DONE, SSE_HEAD, chat_event, chunked, playing, usage_event


class Fake:
    """A server that answers every request after a turn of the loop, and remembers how many it had at a time."""

    def __init__(self, fail: frozenset[int] = frozenset()) -> None:
        self.sent: list[int] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._fail = fail

    async def send(self, number: int, scheduled_ns: int | None) -> RequestSample:
        self.sent.append(number)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        for _ in range(3):
            await asyncio.sleep(0)
        self.in_flight -= 1
        now = time.monotonic_ns()
        error = "http 503" if number in self._fail else None
        return RequestSample(sent_ns=now, done_ns=now, scheduled_ns=scheduled_ns, error=error, output_tokens=2)


async def test_a_closed_loop_keeps_its_concurrency_and_sends_each_request_once() -> None:
    fake = Fake()
    result = await run_closed_loop(fake.send, concurrency=4, requests=11)
    assert sorted(fake.sent) == list(range(11))
    assert fake.most_in_flight == 4
    assert len(result.samples) == 11


async def test_a_closed_loop_never_has_more_users_than_requests() -> None:
    fake = Fake()
    await run_closed_loop(fake.send, concurrency=100, requests=3)
    assert fake.most_in_flight == 3


async def test_the_warm_up_is_sent_but_not_measured() -> None:
    fake = Fake(fail=frozenset({0}))
    result = await run_closed_loop(fake.send, concurrency=2, requests=5, warmup=3, first=0)
    assert sorted(fake.sent) == list(range(8))
    assert (len(result.samples), result.summary.failures) == (5, {})


async def test_numbers_go_on_where_another_run_ended() -> None:
    fake = Fake()
    await run_closed_loop(fake.send, concurrency=2, requests=3, first=10)
    assert sorted(fake.sent) == [10, 11, 12]


async def test_failures_are_counted_by_reason_and_their_tokens_are_not() -> None:
    result = await run_closed_loop(Fake(fail=frozenset({1, 2})).send, concurrency=2, requests=6)
    assert result.summary.failures == {"http 503": 2}
    assert (result.summary.completed, result.summary.output_tokens) == (4, 8)


async def test_a_closed_loop_needs_a_user() -> None:
    with pytest.raises(ValueError, match="concurrency"):
        await run_closed_loop(Fake().send, concurrency=0, requests=1)


async def test_an_open_loop_does_not_wait_for_answers() -> None:
    fake = Fake()
    await run_open_loop(fake.send, repeat(0.0), requests=20)
    assert fake.most_in_flight > 1
    assert fake.sent == list(range(20))


async def test_open_loop_latencies_count_from_the_schedule() -> None:
    offsets = [0.0, 0.01, 0.02, 0.03]
    result = await run_open_loop(Fake().send, iter(offsets), requests=3, warmup=1)
    scheduled = [sample.scheduled_ns for sample in result.samples]
    assert all(stamp is not None for stamp in scheduled)
    differences = [round((stamp - scheduled[0]) / 1e9, 6) for stamp in scheduled]  # type: ignore[operator]
    assert differences == [0.0, 0.01, 0.02]
    assert result.summary.lateness_ms is not None and result.summary.lateness_ms.min >= 0
    assert result.summary.e2e_ms is not None and result.summary.e2e_ms.count == 3


async def test_an_open_loop_ends_with_its_arrivals() -> None:
    assert len((await run_open_loop(Fake().send, iter([0.0, 0.0]), requests=5)).samples) == 2
    assert (await run_open_loop(Fake().send, iter([]), requests=5)).samples == []


async def test_a_closed_loop_over_sockets_adds_up() -> None:
    stream = SSE_HEAD + chunked(chat_event("a"), chat_event("b"), usage_event(2), DONE)
    async with playing(stream) as port:
        target = Target("127.0.0.1", port, "/", body=lambda number: b"{}")
        result = await run_closed_loop(target.send, concurrency=3, requests=9)
    assert (result.summary.completed, result.summary.output_tokens) == (9, 18)
    assert result.summary.output_tokens_per_s == pytest.approx(18 / (result.wall_ns / 1e9))
