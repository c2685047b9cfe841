"""An engine that hangs without dying: its process is stopped, as a deadlock or a lost device would stop it."""

import asyncio
import signal
from typing import Any

import pytest

from tests.integration.http import CHAT, COMPLETIONS, answer, chat, completion
from tests.integration.live import DEADLINE_S, until
from tests.integration.process import ServerProcess
from tests.integration.test_processes import STREAMED, send, send_get, sent, server  # noqa: F401

STALL_S = 4  # a step takes a tenth of that on a busy machine
STALL_TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGAUGE_ENGINE__STALL_S", str(STALL_S))
    monkeypatch.setenv("STREAMGAUGE_ADMISSION__STALL_TIMEOUT", str(STALL_TIMEOUT_S))


async def test_a_hanging_engine_is_told_of_while_the_server_lives_and_may_come_back(
    server: ServerProcess,  # noqa: F811
) -> None:
    server.start()
    server.wait_ready()
    running = await sent(
        server,
        *[(CHAT, chat(f"Story {k}", **STREAMED)) for k in range(3)],
        (COMPLETIONS, completion("Story", **STREAMED)),
        (CHAT, chat("Collected")),
    )
    engine = server.engine_core()
    engine.suspend()
    try:
        await until(lambda: server.status("/ready") == 503, "it is not ready any more", within=STALL_S + 30)
        assert server.status("/health") == 503
        assert server.status("/live") == 200
        refused = await send(server, CHAT, chat())
        assert (refused.status, code_of(refused)) == (503, "engine_stalled")
        assert not any(stream.done() for stream in running), "they had not stalled for long enough"

        async with asyncio.timeout(STALL_TIMEOUT_S + 60):
            *streamed, collected = await asyncio.gather(*running)
        for sample in streamed:
            assert (sample.status, sample.error) == (200, "error event")
            assert '"code":"generation_stalled"' in sample.detail
            assert sample.done_ns is not None, "[DONE] follows the error"
            assert sample.finish_reasons == {}, "none is invented"
            assert sample.generated_events > 0
        assert (collected.status, code_of(collected)) == (504, "generation_stalled")
        assert server.status("/live") == 200
        assert await send_get(server, "/load") == {"server_load": 0}
    finally:
        engine.resume()

    await until(lambda: server.status("/ready") == 200, "it is ready again", DEADLINE_S)
    again = await send(server, CHAT, chat(max_tokens=5, **STREAMED))
    assert (again.status, again.error, again.output_tokens) == (200, None, 5)
    server.signal(signal.SIGTERM)
    assert server.exit_code(within=60) == 0
    server.assert_nothing_left()


def code_of(sample: Any) -> str:
    code: str = answer(sample)["error"]["code"]
    return code
