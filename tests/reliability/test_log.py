"""A log that cannot be written is nobody's trouble: requests are served, and the server still ends as it is told to."""

import asyncio
import json
import os
import re
import signal
from collections import Counter

from tests.support import sse
from tests.support.process import SERVER, ServerProcess, launched
from tests.support.site import CHAT, chat
from tests.support.waiting import DEADLINE_S

FULL = ("sh", "-c", 'exec "$@" 2>/dev/full', "sh", *SERVER)
CLOSED = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *SERVER)
REQUESTS = 3
SECRET = "xylophone-4711"
ANSWER = "The capital"  # what the scripted engine says


async def requests(server: ServerProcess) -> None:
    """Some that are served, and some that are refused, on one connection."""
    async with server.client() as client:
        for _ in range(REQUESTS):
            client.post(CHAT, chat(messages=[{"role": "user", "content": SECRET}], stream=True, max_tokens=5))
            assert await client.head() == 200
            assert sse.finish_reasons(await client.events()) == {0: "length"}
            client.post(CHAT, chat(messages=[{"role": "user", "content": SECRET}], temperature=-1))
            assert await client.head() == 400
            await client.body()


async def dropped(server: ServerProcess) -> float:
    async with server.client() as client:
        client.write(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")
        assert await client.head() == 200
        (count,) = re.findall(rb"^streamgauge_log_dropped_total (\S+)$", await client.body(), re.MULTILINE)
        return float(count)


async def until_dropped(server: ServerProcess, count: float) -> None:
    """The last entry is made behind its answer."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await dropped(server)
            if found >= count:
                break
            await asyncio.sleep(0.02)
    assert found == count


async def ends(server: ServerProcess) -> None:
    server.signal(signal.SIGTERM)
    assert await server.exit_code() == 0


async def test_a_full_disk_costs_entries_that_are_counted_and_nothing_else() -> None:
    async with launched(FULL) as server:
        await server.until("/ready", 200)
        before = await dropped(server)
        assert before > 0, "it has begun"
        await requests(server)
        await until_dropped(server, before + 2 * REQUESTS)
        await ends(server)


async def test_closed_streams_are_no_clients_sockets() -> None:
    async with launched(CLOSED) as server:
        await server.until("/ready", 200)
        await requests(server)
        await until_dropped(server, 0)
        await ends(server)


async def test_whoever_reads_the_log_may_leave() -> None:
    log, its_end = os.pipe()
    with os.fdopen(log) as reader, os.fdopen(its_end, "w") as writer:
        async with launched(SERVER, stderr=writer.fileno()) as server:
            writer.close()
            await server.until("/ready", 200)
            reader.close()
            await requests(server)
            await until_dropped(server, 2 * REQUESTS)
            await ends(server)


async def test_no_prompt_and_no_answer_is_logged() -> None:
    async with launched(SERVER, stderr=asyncio.subprocess.PIPE) as server:
        await server.until("/ready", 200)
        await requests(server)
        await ends(server)
        log = await server.errors()
        served = [entry for entry in map(json.loads, log.splitlines()) if entry["event"] == "request"]
        assert Counter(entry["status"] for entry in served) == {200: REQUESTS, 400: REQUESTS}
        assert SECRET not in log
        assert ANSWER not in log
