"""The server behind a certificate of its own."""

import asyncio
import datetime
import gc
import ipaddress
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support import sse
from tests.support.engines import FakeEngine
from tests.support.live import Client, Live, listening, request_bytes
from tests.support.site import CHAT, chat
from tests.support.waiting import DEADLINE_S, until


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate and key for 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(encoding))
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
async def live(engine: FakeEngine, certificate: tuple[Path, Path]) -> AsyncIterator[Live[FakeEngine]]:
    cert, key = certificate
    short = ("http.header_timeout=0.3", "http.body_timeout=0.3")
    async with listening(engine, f"http.tls_cert={cert}", f"http.tls_key={key}", *short) as live:
        yield live


@asynccontextmanager
async def secured(live: Live[FakeEngine], certificate: tuple[Path, Path]) -> AsyncIterator[Client]:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    async with asyncio.timeout(DEADLINE_S):
        client = Client(*await asyncio.open_connection("127.0.0.1", live.port, ssl=context))
    try:
        yield client
    finally:
        client.reset()


async def test_a_stream_is_the_same_over_tls(live: Live[FakeEngine], certificate: tuple[Path, Path]) -> None:
    async with secured(live, certificate) as client:
        client.post(CHAT, chat(stream=True))
        sequence = await live.engine.sequence()
        sequence.say("one")
        assert await client.head() == 200
        assert sse.text_of(sse.events(await client.chunk())) == "one"
        (stream,) = live.services.pipeline._tasks.values()
        for word in (" two", " three"):
            sequence.say(word)
            assert not stream.meter.parked  # written at once, by no task
            assert sse.text_of(sse.events(await client.chunk())) == word
        sequence.end()
        assert (await client.events())[-1] == sse.DONE


async def test_a_connection_is_kept_over_tls(live: Live[FakeEngine], certificate: tuple[Path, Path]) -> None:
    async with secured(live, certificate) as client:
        for _ in range(3):
            client.post(CHAT, b"{")
            assert await client.head() == 400
            assert json.loads(await client.body())["error"]["code"] == "invalid_json"


async def test_a_refused_client_can_read_why_over_tls(live: Live[FakeEngine], certificate: tuple[Path, Path]) -> None:
    async with secured(live, certificate) as client:
        client.write(request_bytes(CHAT, chat(), {"X": "x" * 40_000}))
        assert await client.head() == 431
        assert json.loads(await client.closed())["error"]["code"] == "headers_too_large"
    async with secured(live, certificate) as client:
        client.write(b"GET /live HTT")
        assert await client.head() == 408
        assert json.loads(await client.closed())["error"]["code"] == "header_timeout"


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


BROKEN = {
    "plain http": b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n",
    "garbage": bytes(range(256)) * 4,
    "half a hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "nothing": b"",
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_failed_handshake_leaves_nothing_behind(
    live: Live[FakeEngine], certificate: tuple[Path, Path], case: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = open_files()
    for _ in range(20):
        async with live.client() as client:
            client.write(BROKEN[case])
            await asyncio.sleep(0)
    await until(lambda: open_files() <= before)
    async with secured(live, certificate) as client:
        client.write(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await client.head() == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_client_that_does_not_trust_us_leaves_nothing_behind(
    live: Live[FakeEngine], caplog: pytest.LogCaptureFixture
) -> None:
    before = open_files()
    for _ in range(10):
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", live.port, ssl=ssl.create_default_context())
    await until(lambda: open_files() <= before)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
