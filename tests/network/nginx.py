"""nginx in front of a server, as Debian ships it and as one configures it who reads no further than `proxy_pass`.

Its defaults stay: buffering is on, HTTP/1.0 with `Connection: close` goes to the server (before nginx 1.29.7), and 60
seconds of silence end an answer. Needs no privileges; all its files lie in a folder of the test.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support.live import Client
from tests.support.process import free_port
from tests.support.waiting import DEADLINE_S

# Debian keeps it where an ordinary user's PATH may not lead.
BINARY = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
needs_nginx = pytest.mark.skipif(BINARY is None, reason="there is no nginx here (Debian: apt-get install nginx)")

CONFIG = """
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/client_body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{upstream};
            {directives}
        }}
    }}
}}
"""


class Nginx:
    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self._log = folder / "error.log"

    @property
    def errors(self) -> str:
        """What it has logged."""
        return self._log.read_text() if self._log.exists() else ""

    @asynccontextmanager
    async def client(self, receive_buffer: int | None = None) -> AsyncIterator[Client]:
        client = await Client.connect(self.port, receive_buffer)
        try:
            yield client
        finally:
            client.reset()


@asynccontextmanager
async def nginx(upstream: int, folder: Path, *directives: str) -> AsyncIterator[Nginx]:
    """A proxy for the server on port `upstream`; `directives` go into its only location."""
    assert BINARY is not None
    port = free_port()
    config = folder / "nginx.conf"
    # Started by root it would hand its workers to a user to whom the folder is closed.
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(
        CONFIG.format(
            user=user, folder=folder, port=port, upstream=upstream, directives="\n            ".join(directives)
        )
    )
    # Both again as arguments: until it has read the file it would use those of the system's own nginx.
    arguments = ["-p", str(folder), "-e", str(folder / "error.log"), "-c", str(config), "-g", "daemon off;"]
    process = await asyncio.create_subprocess_exec(BINARY, *arguments, stderr=asyncio.subprocess.DEVNULL)
    proxy = Nginx(port, folder)
    try:
        await _accepting(process, proxy)
        yield proxy
    finally:
        with suppress(ProcessLookupError):
            process.terminate()  # at once, with its workers
        async with asyncio.timeout(DEADLINE_S):
            await process.wait()


async def _accepting(process: asyncio.subprocess.Process, proxy: Nginx) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            assert process.returncode is None, proxy.errors
            with suppress(OSError):
                async with proxy.client():
                    return
            await asyncio.sleep(0.02)
