"""One stream as a server wrote it, kept so that a floor can write the same bytes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.arms import HOST, ArmError
from bench.wire import WireError, parse_head, request_bytes


@dataclass(frozen=True)
class Recording:
    """`steps` has, by the engine step that they follow, the writes of one answer: each a chunk of its body."""

    steps: Sequence[Sequence[bytes]]

    @classmethod
    def of(cls, writes: Sequence[bytes], tokens: int) -> "Recording":
        """One write per token; those behind the last token (usage, [DONE]) follow its step as well."""
        own, last = writes[: tokens - 1], writes[tokens - 1 :]
        return cls([[write] for write in own] + ([list(last)] if last else []))

    def save(self, path: Path) -> None:
        path.write_bytes(orjson.dumps([[write.decode() for write in writes] for writes in self.steps]))

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """What `save` wrote; raises OSError, and ValueError for anything else."""
        return cls([[text.encode() for text in writes] for writes in orjson.loads(path.read_bytes())])


async def record(port: int, path: str, body: bytes, deadline_s: float) -> list[bytes]:
    """The chunks of the answer to one request (RFC 9112, 7.1), as the server cut them.

    Raises ArmError for anything but a chunked event stream, and TimeoutError.
    """
    async with asyncio.timeout(deadline_s):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(request_bytes(HOST, port, path, body, {}))
            head = parse_head((await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n"))
            if not head.is_event_stream or head.headers.get("transfer-encoding") != "chunked":
                raise ArmError(f"there is no stream to record: status {head.status}, {dict(head.headers)}")
            return [chunk async for chunk in _chunks(reader)]
        except (WireError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ArmError(f"there is no stream to record: {error}") from None
        finally:
            writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        yield (await reader.readexactly(size + 2)).removesuffix(b"\r\n")
