"""A headless Chromium that is told what to do in the DevTools protocol over two pipes: no driver, port or package."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import START_S
from tests.support.waiting import DEADLINE_S

BINARY = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    BINARY is None, reason="there is no chromium here (Debian: apt-get install chromium)"
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
# It reads from 3 and writes to 4.
ON_ITS_PIPES = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])  # out of the way of 3 and 4
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """The browser: its pipe, and the tabs open in it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.WriteTransport) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}

    async def call(self, method: str, params: dict[str, Any] | None = None, session: str | None = None) -> Any:
        number = len(self._answers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params or {}} | ({"sessionId": session} if session else {})
        self._writer.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(START_S):
            result = await answer
        assert "error" not in result, result
        return result["result"]

    async def listen(self) -> None:
        """Hand out what it says, until it has gone."""
        try:
            while True:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if "id" in message:
                    self._answers[message["id"]].set_result(message)
                elif message["method"] == "Runtime.bindingCalled":
                    self._tabs[message["sessionId"]].reports.put_nowait(json.loads(message["params"]["payload"]))
        except asyncio.IncompleteReadError:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError("the browser has gone"))

    async def open(self, url: str) -> "Tab":
        target = (await self.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
        session = (await self.call("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        tab = self._tabs[session] = Tab(self, target, session)
        await tab.call("Runtime.enable")
        await tab.call("Runtime.addBinding", {"name": "tell"})
        await tab.call("Page.navigate", {"url": url})
        # Navigating answers when the new page is there, not when it has been read.
        await tab.run(
            "(async () => { while (document.readyState !== 'complete') await new Promise(f => setTimeout(f, 10)); })()",
            wait=True,
        )
        return tab


class Tab:
    """`run` a script in it; what the script gives to `report(…)` comes out of `heard`."""

    def __init__(self, browser: Chromium, target: str, session: str) -> None:
        self.reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._browser = browser
        self._target = target
        self._session = session

    async def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return await self._browser.call(method, params, self._session)

    async def run(self, script: str, *, wait: bool = False) -> None:
        """Start `script`, and with `wait` see its promise through."""
        expression = f"globalThis.report = message => tell(JSON.stringify(message));\n{script}"
        result = await self.call("Runtime.evaluate", {"expression": expression, "awaitPromise": wait})
        assert "exceptionDetails" not in result, result

    async def heard(self) -> dict[str, Any]:
        """The next report."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reports.get()

    async def close(self) -> None:
        await self._browser.call("Target.closeTarget", {"targetId": self._target})


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Chromium]:
    """A browser that has never run before; `folder` is its home."""
    assert BINARY is not None
    to_read, ours_to_write = os.pipe()
    ours_to_read, to_write = os.pipe()
    command = [sys.executable, "-c", ON_ITS_PIPES, str(to_read), str(to_write)]
    command += [BINARY, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "TMPDIR": str(folder)},
            pass_fds=(to_read, to_write),
            stdout=log,
            stderr=log,
        )
    os.close(to_read)
    os.close(to_write)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**24)
    input_, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_to_read, "rb")
    )
    output, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(ours_to_write, "wb"))
    browser = Chromium(reader, output)
    listening = asyncio.create_task(browser.listen(), name="chromium")
    try:
        yield browser
        await browser.call("Browser.close")
    except BaseException:
        with suppress(ProcessLookupError):
            process.terminate()
        raise
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await process.wait()
            await listening
        input_.close()
        output.close()
