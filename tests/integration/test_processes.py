"""Starting, draining and dying, as an operator sees it: servers in processes of their own."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import termios
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from bench.client import stream_request
from bench.sample import RequestSample
from tests.integration.http import CHAT, COMPLETIONS, answer, chat, completion
from tests.integration.live import DEADLINE_S, until
from tests.integration.process import ServerProcess, server_process

TOKENS = 900
"""A fast machine makes 300 in less time than the checks of a draining server take: streams ended before them."""
STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with server_process() as process:
        yield process


async def send(server: ServerProcess, path: str, body: dict[str, Any]) -> RequestSample:
    raw = json.dumps({"max_tokens": TOKENS, "ignore_eos": True, **body}).encode()
    return await stream_request(server.host, server.port, path, raw, deadline_s=DEADLINE_S)


async def sent(server: ServerProcess, *requests: tuple[str, dict[str, Any]]) -> "list[asyncio.Task[RequestSample]]":
    """The requests on their way, all of them in the engine's batch."""
    tasks = [asyncio.create_task(send(server, path, body)) for path, body in requests]
    async with asyncio.timeout(DEADLINE_S):
        # In a thread: while this loop waited for metrics, it would keep its own clients from going on.
        while await asyncio.to_thread(engine_runs, server) != len(tasks):
            ended = [task.result() for task in tasks if task.done()]
            assert not ended, ended
    return tasks


def engine_runs(server: ServerProcess) -> int:
    text = httpx.get(f"http://{server.host}:{server.port}/metrics", timeout=30).text
    (line,) = [line for line in text.splitlines() if line.startswith("vllm:num_requests_running{")]
    return round(float(line.rsplit(" ", 1)[1]))


class Terminal:
    """A terminal whose foreground job is the server; what appears on it becomes the server's log."""

    def __init__(self) -> None:
        self._master, self._slave = pty.openpty()

    def run(self, server: ServerProcess) -> None:
        server.start(
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(self._slave)
        threading.Thread(target=self._read, args=(server,), name="terminal", daemon=True).start()

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def _read(self, server: ServerProcess) -> None:
        with server.log_path.open("ab", buffering=0) as log:
            try:
                while data := os.read(self._master, 65536):
                    log.write(data)
            except OSError:
                pass  # the last process on it has ended
        os.close(self._master)


async def test_ctrl_c_lets_running_streams_finish_and_exits_with_0(server: ServerProcess) -> None:
    terminal = Terminal()
    terminal.run(server)
    server.wait_for("/live", 200, within=100)
    assert server.status("/ready") == 503, "it answers while the model loads"
    assert server.status("/health") == 503
    refused = await send(server, CHAT, chat())
    assert refused.status == 503
    assert answer(refused)["error"]["code"] == "model_not_ready"
    server.wait_ready()

    streams = await sent(server, (CHAT, chat(**STREAMED)), (COMPLETIONS, completion(**STREAMED)))
    terminal.press_ctrl_c()
    await until(lambda: server.status("/ready") == 503, "it is not ready any more")
    assert server.status("/live") == 200
    late = await send(server, CHAT, chat())
    assert late.status == 503
    assert answer(late)["error"]["code"] == "server_shutting_down"
    assert not any(stream.done() for stream in streams)

    for sample in await asyncio.gather(*streams):
        assert (sample.error, sample.detail) == (None, "")
        assert sample.done_ns is not None
        assert sample.finish_reasons == {0: "length"}
        assert sample.output_tokens == TOKENS
    assert server.exit_code(within=60) == 0
    server.assert_nothing_left()


async def test_killing_the_server_ends_its_engine(server: ServerProcess) -> None:
    server.start()
    server.wait_ready()
    streams = await sent(server, (CHAT, chat(**STREAMED)))
    server.signal(signal.SIGKILL)
    for sample in await asyncio.gather(*streams):
        assert sample.error == "cut"
    server.exit_code(within=10)
    server.assert_nothing_left()


async def test_the_death_of_the_engine_ends_every_stream_with_an_error(server: ServerProcess) -> None:
    server.start()
    server.wait_ready()
    streamed = await sent(
        server,
        *[(CHAT, chat(f"Story {k}", **STREAMED)) for k in range(4)],
        *[(COMPLETIONS, completion(f"Story {k}", **STREAMED)) for k in range(2)],
        (CHAT, chat("Collected")),
        (COMPLETIONS, completion("Collected")),
    )
    died = time.monotonic()
    server.engine_core().kill()
    async with asyncio.timeout(10):
        samples = await asyncio.gather(*streamed)
    print(f"all streams had ended {time.monotonic() - died:.2f} s after the engine")

    for sample in samples[:6]:
        assert sample.status == 200
        assert sample.error == "error event"
        assert '"code":"engine_dead"' in sample.detail
        assert sample.done_ns is not None, "[DONE] follows the error"
        assert sample.finish_reasons == {}, "none is invented"
        assert sample.generated_events > 0
    for sample in samples[6:]:
        assert sample.status == 503
        assert answer(sample)["error"]["code"] == "engine_dead"

    assert server.status("/ready") == 503
    assert server.status("/health") == 503
    assert server.status("/live") == 200
    refused = await send(server, CHAT, chat())
    assert refused.status == 503
    assert await send_get(server, "/load") == {"server_load": 0}
    server.signal(signal.SIGTERM)
    assert server.exit_code(within=60) == 0
    server.assert_nothing_left()


async def send_get(server: ServerProcess, path: str) -> Any:
    async with httpx.AsyncClient(base_url=f"http://{server.host}:{server.port}") as client:
        return (await client.get(path)).json()


@pytest.mark.parametrize("stage", ["imports", "processes"])
async def test_a_signal_during_loading_ends_it_promptly(server: ServerProcess, stage: str) -> None:
    server.start()
    server.wait_for("/live", 200, within=100)
    if stage == "processes":
        await until(server.has_engine_core, "the engine's processes start", DEADLINE_S)
    assert server.status("/ready") == 503
    server.signal(signal.SIGTERM)
    await until(lambda: server.ended(watch=True), "the server has ended", within=30)
    assert server.exit_code(within=1) == 0
    server.assert_nothing_left()
