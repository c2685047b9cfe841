"""The life of the process: what operators and their tools see of its beginning and its end."""

import asyncio
import json
import os
import pty
import signal
import socket
from pathlib import Path
from time import monotonic

import pytest
from structlog.testing import capture_logs

from server.config import ConfigError
from server.serve import check_exposure
from tests.support import sse
from tests.support.live import Client
from tests.support.process import ServerProcess, server_process
from tests.support.site import CHAT, chat, settings_of

TOKENS = 60


async def streaming(client: Client, tokens: int) -> None:
    """A stream whose first token has come."""
    client.post(CHAT, chat(stream=True, max_tokens=tokens))
    assert await client.head() == 200
    assert await client.chunk()


async def finished(client: Client) -> None:
    """The stream runs to its own end."""
    found = await client.events()
    assert sse.finish_reasons(found) == {0: "length"}
    assert found[-1] == sse.DONE


async def refused(server: ServerProcess, code: str) -> dict[str, str]:
    async with server.client() as client:
        client.post(CHAT, chat())
        assert await client.head() == 503
        assert json.loads(await client.body())["error"]["code"] == code
        return client.headers


async def test_it_answers_while_loading_and_drains_at_sigterm() -> None:
    async with server_process("engine.scripted.load_s=1", "engine.scripted.step_ms=40") as server:
        await server.until("/live", 200)
        assert await server.get("/ready") == 503
        assert await server.get("/health") == 503
        assert int((await refused(server, "model_not_ready"))["retry-after"]) > 0
        await server.until("/ready", 200)
        async with server.client() as client:
            await streaming(client, TOKENS)
            server.signal(signal.SIGTERM)
            await server.until("/ready", 503)
            assert await server.get("/live") == 200
            assert (await refused(server, "server_shutting_down"))["connection"] == "close"
            await finished(client)
        assert await server.exit_code() == 0
        lines = [json.loads(line) for line in (await server.errors()).splitlines()]
        events = [line["event"] for line in lines if line["event"] != "request"]
        assert events == ["no_keys", "loading", "ready", "draining"]
        (served,) = [line for line in lines if line["event"] == "request" and line["status"] == 200]
        assert (served["outcome"], served["output_tokens"]) == ("ok", TOKENS)


async def test_streams_longer_than_the_grace_end_with_an_error() -> None:
    async with server_process("http.shutdown_grace=0.3", "engine.scripted.max_num_seqs=2") as server:
        await server.until("/ready", 200)
        async with server.client() as running, server.client() as collected, server.client() as queued:
            await streaming(running, 5000)
            collected.post(CHAT, chat(max_tokens=5000))
            queued.post(CHAT, chat(stream=True, max_tokens=5000))
            await asyncio.sleep(0.2)
            server.signal(signal.SIGTERM)
            *shown, error, done = await running.events()
            assert (error["error"]["code"], done) == ("server_shutting_down", sse.DONE)
            assert sse.finish_reasons(shown) == {}
            for client in (collected, queued):
                assert await client.head() == 503
                assert json.loads(await client.body())["error"]["code"] == "server_shutting_down"
        assert await server.exit_code() == 0


async def test_a_signal_while_loading_ends_it_with_0() -> None:
    async with server_process("engine.scripted.load_s=600") as server:
        await server.until("/live", 200)
        server.signal(signal.SIGTERM)
        assert await server.exit_code() == 0


async def test_a_second_signal_cuts_the_grace_short() -> None:
    async with server_process("http.shutdown_grace=600") as server:
        await server.until("/ready", 200)
        async with server.client() as client:
            await streaming(client, 5000)
            server.signal(signal.SIGTERM)
            await server.until("/ready", 503)
            begun = monotonic()
            server.signal(signal.SIGTERM)
            *_, error, done = await client.events()
            assert (error["error"]["code"], done) == ("server_shutting_down", sse.DONE)
            assert await server.exit_code() == 0
            assert monotonic() - begun < 30


async def test_ctrl_c_in_a_terminal_lets_streams_finish_as_sigterm_does() -> None:
    terminal, its_end = pty.openpty()
    try:
        async with server_process("engine.scripted.step_ms=40", terminal=its_end) as server:
            await server.until("/ready", 200)
            async with server.client() as client:
                await streaming(client, TOKENS)
                os.write(terminal, b"\x03")
                await server.until("/ready", 503)
                await finished(client)
            assert await server.exit_code() == 0
            assert "Traceback" not in await server.errors()
    finally:
        os.close(terminal)
        os.close(its_end)


async def test_a_model_that_is_nowhere_ends_it_with_a_message() -> None:
    async with server_process(model="/no/such/model") as server:
        assert await server.exit_code(90) == 2
        errors = await server.errors()
        assert "/no/such/model" in errors
        assert "Traceback" not in errors


async def test_a_model_that_cannot_be_loaded_ends_it_with_a_message(tmp_path: Path) -> None:
    async with server_process(model=str(tmp_path)) as server:
        assert await server.exit_code(90) == 1
        lines = [json.loads(line) for line in (await server.errors()).splitlines()]
        (failure,) = [line for line in lines if line["event"] == "load_failed"]
        assert failure["model"] == str(tmp_path)
        assert failure["error"]


@pytest.mark.parametrize(
    ("host", "settings", "who"),
    [
        ("127.0.0.1", (), "anybody on this machine"),
        ("127.9.9.9", ("keys.insecure=true",), "anybody on this machine"),
        ("::1", (), "anybody on this machine"),
        ("localhost", (), "anybody on this machine"),
        ("0.0.0.0", ("keys.insecure=true",), "anybody"),
        ("0.0.0.0", ("keys.api_key=simple",), None),
        ("::", ("keys.file=keys.json",), None),
    ],
)
def test_a_server_without_keys_says_who_may_call(host: str, settings: tuple[str, ...], who: str | None) -> None:
    with capture_logs() as logs:
        check_exposure(settings_of(f"http.host='{host}'", *settings))
    assert [(line["event"], line["log_level"], line["who_may_call"]) for line in logs] == (
        [("no_keys", "warning", who)] if who else []
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "localhost.example.com", ""])
def test_without_keys_no_other_machine_is_served(host: str) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        check_exposure(settings_of(f"http.host='{host}'"))


async def test_a_port_in_use_ends_it_before_any_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with server_process(port=taken.getsockname()[1]) as server:
            assert await server.exit_code(90) > 0
            errors = await server.errors()
            assert "Address already in use" in errors
            assert "loading" not in errors
